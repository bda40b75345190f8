"""A whole turn without a network: our driver and its journal beside the loop that everybody writes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.decision import amounts_policy
from benchmarks.harness import WALL, Case, Effort, measure
from benchmarks.report import Section
from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Finalize, Limit, Policy
from engine.run.driver import Driver
from engine.run.tools import Tool
from engine.store.sqlite import SqliteStore

TURNS = 20
"""Model calls of a run; all but the last ask for one tool."""

ANCHOR = "bare loop"
OURS, SQLITE, AMOUNTS = "ours, memory journal", "ours, SQLite journal", "ours, memory journal, amounts limited"
QUESTION = "What is the weather like in Turin, Oslo and Lima?"

ANSWER = Reply(Message("assistant", "Mild, cold, foggy."), "stop", Usage(200, 20))


class FakeModel:
    """A client that asks for the weather until the last turn. Each reply is made anew, as a real one would be."""

    name = wire = "fake"
    model = "m"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, request: Request, **_options: Any) -> Reply:
        self.calls += 1
        if self.calls % TURNS == 0:
            return ANSWER
        call = ToolCall(f"call_{self.calls}", "weather", '{"city":"Oslo"}')
        return Reply(Message("assistant", "", (call,)), "tool_calls", Usage(200, 20))

    async def aclose(self) -> None:
        pass


async def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"{city}: 4 degrees, wind"


DECLARED = (Tool(weather).spec,)


def policy() -> Policy:
    """Limits that bind but are not reached."""
    finalize = (Finalize(),)
    limits = (
        Limit(resource="llm_calls", max=10 * TURNS, then=finalize),
        Limit(resource="tool_iterations", max=10 * TURNS, then=finalize),
    )
    return Policy(name="loop", limits=limits)


def with_amounts() -> Policy:
    """The same with tokens, money, time and thresholds."""
    amounts = amounts_policy()
    others = tuple(x for x in amounts.limits if x.resource not in ("llm_calls", "tool_iterations"))
    return amounts.model_copy(update={"limits": (*policy().limits, *others)})


async def bare(client: Any) -> str:
    """The loop without limits, journal, deadlines or checks: what any of these costs is what the rows below add."""
    tools: dict[str, Callable[..., Any]] = {"weather": weather}
    messages = [Message("user", QUESTION)]
    while True:
        reply = await client.complete(Request(tuple(messages), DECLARED))
        messages.append(reply.message)
        if not reply.message.tool_calls:
            text: str = reply.message.text
            return text
        for call in reply.message.tool_calls:
            result = await tools[call.name](**json.loads(call.arguments))
            messages.append(Message("tool", result, tool_call_id=call.id))


def sections(effort: Effort) -> Iterator[Section]:
    loop = asyncio.new_event_loop()
    try:
        yield _in_memory(loop, effort)
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(Path(folder) / "runs.journal")
            try:
                yield _on_disk(loop, store, effort)
            finally:
                store.close()
    finally:
        loop.close()


def _in_memory(loop: asyncio.AbstractEventLoop, effort: Effort) -> Section:
    cases = (
        Case(ANCHOR, _bare(loop), TURNS),
        Case(OURS, governed(loop, policy()), TURNS),
        Case(AMOUNTS, governed(loop, with_amounts()), TURNS),
    )
    times = measure(cases, effort.longer(4))
    section = Section(
        "The loop, offline",
        f"Runs of {TURNS} turns against a fake model: a turn is one call and one asynchronous tool, all decisions, "
        "the transcript, deadlines, arguments checked against the tool's schema, and the journal. The well-known "
        "frameworks' own loops take 2,000 to 3,100 µs a turn here.",
        "turn",
        ANCHOR,
    )
    section.timed(times, ANCHOR)
    section.timed(times, OURS, at_most=60e-6)
    section.timed(times, AMOUNTS, at_most=60e-6)
    return section


def _on_disk(loop: asyncio.AbstractEventLoop, store: SqliteStore, effort: Effort) -> Section:
    cases = (Case(OURS, governed(loop, policy()), TURNS), Case(SQLITE, governed(loop, policy(), store), TURNS))
    times = measure(cases, effort.longer(4), WALL)
    section = Section(
        "The loop, offline, with its journal on disk",
        "The same by the wall clock, with a commit an event: four a turn, two of them with the content they name.",
        "turn",
        OURS,
    )
    section.timed(times, OURS)
    section.timed(times, SQLITE)
    return section


def _bare(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    client = FakeModel()

    def run() -> None:
        assert loop.run_until_complete(bare(client)) == ANSWER.message.text

    return run


def governed(loop: asyncio.AbstractEventLoop, limits: Policy, journal: SqliteStore | None = None) -> Callable[[], None]:
    """A run of our driver, checked for what it should have done. Without a journal each run keeps its own in memory."""
    client = FakeModel()
    driver = Driver(limits, client, [weather], journal=journal)

    def run() -> None:
        result = loop.run_until_complete(driver.run(QUESTION))
        assert result.text == ANSWER.message.text

    run()
    assert client.calls == TURNS
    return run
