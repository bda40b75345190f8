"""What it costs that a run has one driver and survives its process: leases, and long runs that are taken up again."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import journal
from benchmarks.decision import decisions
from benchmarks.harness import WALL, Case, Effort, measure
from benchmarks.loop import ANSWER, QUESTION, FakeModel, weather
from benchmarks.report import Section
from benchmarks.task import STARTED, built, made, policy
from engine.core.decisions import encode_decision
from engine.core.events import encode_event
from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Limit, Policy
from engine.core.step import compile, replay
from engine.run.driver import Driver
from engine.store.owners import new_owner
from engine.store.protocol import RunRecord
from engine.store.shared import digest_of
from engine.store.sqlite import SqliteStore

HELD, FREE = "append to ours, its lease checked", "append to ours, no lease"
WHOLE, BARE_WHOLE = "a whole run to ours, its lease checked", "a whole run, bare sqlite3"
TAKEN = "take a lease and give it back"
ROWS, LOADED, FOLDED, RESUMED = "read the rows", "load the run", "load and fold it", "resume it to its end"
EVENTS, FEW = 10_000, 200
_TTL = 3_600_000
TURN = 4
"""Events of one turn: a call and one tool."""


def sections(effort: Effort) -> Iterator[Section]:
    yield _appending(effort)
    yield _resuming(effort)


def _appending(effort: Effort) -> Section:
    events = (STARTED, *built(made(Usage(1200, 80), "m")))
    steps = tuple(zip(events, decisions(compile(policy()), events), strict=True))
    rows = [(encode_event(e).decode(), encode_decision(d).decode(), digest_of(d)) for e, d in steps]
    with tempfile.TemporaryDirectory() as folder:
        free, held = (SqliteStore(Path(folder) / f"{name}.journal") for name in ("free", "held"))
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        try:
            cases = (
                Case(BARE_WHOLE, journal.inserts(bare, rows), len(steps)),
                Case(WHOLE, _held(held, steps), len(steps)),
                Case(journal.ANCHOR, _inserted(bare, rows[:-1]), len(steps) - 1),
                Case(FREE, _appended(free, steps[:-1], None), len(steps) - 1),
                Case(HELD, _appended(held, steps[:-1], "tree"), len(steps) - 1),
                Case(TAKEN, lambda: held.release(held.acquire("r", new_owner(), _TTL))),
            )
            times, processor = measure(cases, effort.longer(2), WALL), measure(cases, effort.longer(2))
        finally:
            free.close()
            held.close()
            bare.close()
    section = Section(
        "Journal: a run with one driver",
        "One row after another of one run, each a commit, as above. Under a lease each row is written only while "
        "nobody else has taken the tree over. A tree has one lease for all its runs. Below that whole runs of 23 "
        "events: ours has to begin, with policy and indexes, and to end, with outcome and use.",
        "event",
        journal.ANCHOR,
    )
    section.timed(times, journal.ANCHOR)
    section.timed(times, FREE, ratio=1.5)
    section.timed(times, HELD, ratio=1.5)
    for name in (FREE, HELD):
        section.timed(processor, name, shown=f"processor time: {name}", ratio=1.5)
    section.timed(times, BARE_WHOLE, anchor=BARE_WHOLE)
    section.timed(times, WHOLE, anchor=BARE_WHOLE)
    section.timed(times, TAKEN, note="two commits, once a tree")
    return section


def _appended(store: SqliteStore, steps: tuple[Any, ...], root: str | None) -> Callable[[], None]:
    """Goes on with one run for ever."""
    numbers = itertools.count()
    store.begin(RunRecord(run="run-long", policy="{}", started=0, root=root))

    def run() -> None:
        for event, decision in steps:
            store.append("run-long", next(numbers), event, decision)

    return run


def _inserted(db: sqlite3.Connection, rows: list[tuple[str, str, str]]) -> Callable[[], None]:
    """The same by hand, in tables that are there."""
    numbers = itertools.count()

    def run() -> None:
        for row in rows:
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", ("run-long", next(numbers), *row))

    return run


def _held(store: SqliteStore, steps: tuple[Any, ...]) -> Callable[[], None]:
    numbers = itertools.count()
    store.acquire("tree", new_owner(), _TTL)

    def run() -> None:
        name = f"run-{next(numbers):08}"
        store.begin(RunRecord(run=name, policy="{}", started=0, root="tree"))
        for seq, (event, decision) in enumerate(steps):
            store.append(name, seq, event, decision)

    return run


class LongModel(FakeModel):
    """Asks for the weather so many times that the run has ``events`` events."""

    def __init__(self, events: int) -> None:
        super().__init__()
        self.turns = events // TURN

    async def complete(self, request: Request, **_options: Any) -> Reply:
        self.calls += 1
        if self.calls > self.turns:
            return ANSWER
        call = ToolCall(f"call_{self.calls}", "weather", '{"city":"Oslo"}')
        return Reply(Message("assistant", "", (call,)), "tool_calls", Usage(200, 20))


def _resuming(effort: Effort) -> Section:
    events = FEW if effort.quick else EVENTS
    limits = Policy(name="long", limits=(Limit(resource="llm_calls", max=events),))
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "runs.journal")
        driver = Driver(limits, LongModel(events), [weather], journal=store)
        try:
            loop.run_until_complete(driver.run(QUESTION, run_id="long"))
            return _measured(loop, store, driver, limits, effort)
        finally:
            store.close()
            loop.close()


def _measured(
    loop: asyncio.AbstractEventLoop, store: SqliteStore, driver: Driver, limits: Policy, effort: Effort
) -> Section:
    reader, compiled = sqlite3.connect(store.path), compile(limits)
    count = len(store.load("long").steps)

    def rows() -> None:
        query = "SELECT seq, event, decision, digest FROM events WHERE run = 'long' ORDER BY seq"
        assert len(reader.execute(query).fetchall()) == count

    def folded() -> None:
        replay(compiled, (step.event for step in store.load("long").steps))

    async def resumed() -> None:
        assert (await driver.resume("long")).text == ANSWER.message.text

    cases = (
        Case(ROWS, rows),
        Case(LOADED, lambda: store.load("long")),
        Case(FOLDED, folded),
        Case(RESUMED, lambda: loop.run_until_complete(resumed())),
    )
    times = measure(cases, effort.slow(), WALL)
    reader.close()
    section = Section(
        "Resuming a long run",
        f"A run of {count:,} events, from its file. Reading the rows is SQLite alone. Loading makes events and "
        "decisions of them and checks every digest; resuming does that, takes every decision again, compares it with "
        "the one written down, and rebuilds the conversation.",
        "run",
        ROWS,
    )
    section.timed(times, ROWS)
    section.timed(times, LOADED)
    section.timed(times, FOLDED)
    section.timed(times, RESUMED, at_most=1.0)
    return section
