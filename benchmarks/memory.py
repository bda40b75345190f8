"""Bytes of a live run's state, and whether a long process grows."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from benchmarks.decision import amounts_policy
from benchmarks.harness import Effort
from benchmarks.loop import QUESTION, TURNS, FakeModel, policy, weather
from benchmarks.report import Row, Section, verdict
from benchmarks.task import CLIENT, TOOL_NAME, built, made
from benchmarks.task import policy as task
from engine.core.events import RunStarted, ToolRequested
from engine.core.messages import Usage
from engine.core.state import State, encode_state
from engine.core.step import Compiled, compile, replay
from engine.run.driver import Driver

MODEL = "m"


def sections(effort: Effort) -> Iterator[Section]:
    yield _state()
    yield _growth(effort)


def _state() -> Section:
    section = Section(
        "State of a live run",
        "In the middle of the task's run, one tool started: every object that only this run's state keeps alive "
        "(what it shares with the policy, with an earlier or with another run is not its own), and its JSON.",
        "state",
    )
    for name, compiled in (("two limits", compile(task())), ("tokens, money, time too", compile(amounts_policy()))):
        state, other = _live(compiled)
        own = own_bytes(state, shared_with=(compiled.initial, other, CLIENT, MODEL, TOOL_NAME))
        stored = len(encode_state(state))
        section.rows.append(Row(f"in memory, {name}", f"{own:,} B", bar="1,000 B", met=verdict(own, own, 1000)))
        section.rows.append(Row(f"as JSON, {name}", f"{stored:,} B", bar="1,000 B", met=verdict(stored, stored, 1000)))
    return section


def _live(compiled: Compiled) -> tuple[State, State]:
    """A state with a tool running, and another run's state.

    Names of clients, models and tools are no run's own: a driver hands over those that are registered.
    """
    started = RunStarted(0, uuid.uuid4().hex)
    events = (started, *built(made(Usage(1200, 80), MODEL)))[:12]
    assert isinstance(events[-1], ToolRequested)
    return replay(compiled, events), replay(compiled, (RunStarted(0, "other"),))


def own_bytes(value: Any, shared_with: tuple[Any, ...] = ()) -> int:
    """``sys.getsizeof`` over everything reachable, each object once, without what the others reach too."""
    seen: set[int] = set()
    for other in shared_with:
        _size(other, seen)
    return _size(value, seen)


def _size(value: Any, seen: set[int]) -> int:
    if id(value) in seen or value is None or isinstance(value, type):
        return 0
    if isinstance(value, int) and -5 <= value <= 256:
        return 0  # these exist once in every process
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, tuple):
        size += sum(_size(item, seen) for item in value)
    elif isinstance(value, msgspec.Struct):
        size += sum(_size(getattr(value, name), seen) for name in value.__struct_fields__)
    return size


def _growth(effort: Effort) -> Section:
    turns = 400 if effort.quick else 10_000
    warm = max(TURNS * 5, turns // 10)
    driver = Driver(policy(), FakeModel(), [weather])
    loop = asyncio.new_event_loop()
    try:
        _drive(loop, driver, warm)
        tracemalloc.start()
        before = _traced()
        _drive(loop, driver, turns)
        grown = _traced() - before
    finally:
        tracemalloc.stop()
        loop.close()
    section = Section(
        "Growth",
        f"{turns:,} turns in runs of {TURNS} in one process, after a warm-up; allocations still alive afterwards, with "
        "every run's result dropped.",
        "process",
    )
    # An object or two may be alive at one of both moments: less than a byte a turn is no growth.
    met = verdict(grown, grown, turns)
    section.rows.append(
        Row(f"after {turns:,} turns", f"{grown:,} B", bar="none", met=met, note=f"{grown / turns:.2f} B a turn")
    )
    return section


def _drive(loop: asyncio.AbstractEventLoop, driver: Driver, turns: int) -> None:
    for _ in range(turns // TURNS):
        loop.run_until_complete(driver.run(QUESTION))


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
