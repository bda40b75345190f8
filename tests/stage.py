"""Our driver led along a run that a search has found: over HTTP, journaled, in virtual time.

Everybody who has a part in the run (the rehearsed model, its tools, the host's functions, people, whoever cancels)
waits until all events before his own have been journaled and the time of his own has come. What the driver makes of it
is its own affair, and is in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.clients import from_spec
from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Policy
from engine.core.state import Outcome
from engine.rehearsal import Rehearsal, Script
from engine.run.approvals import ApprovalRequest
from engine.run.driver import Driver
from engine.run.hooks import CallContext
from engine.run.results import Answer, StopRun
from engine.run.tools import Tool, ToolContext
from engine.store.protocol import RunRecord
from engine.store.sqlite import SqliteStore
from engine.testing.virtual_time import VirtualLoop, in_virtual_time
from engine.verify.replay import Played

SHAPED = ("rate_limit", "context_exceeded", "overloaded", "auth", "invalid_request", "content_filter", "provider")
"""Reasons of failures that a provider's answer has; each of the others comes about in its own way."""

OTHERWISE = {
    "timeout": {"fail": "timeout"},
    "network": {"broken": "close"},
    "truncated": {"text": "", "finish": "length"},
    "unknown": {"status": 300},
}


class Cannot(Exception):
    """The run has something that this driver never does: what, in words."""


class _Told(SqliteStore):
    """A journal that says how many events it has."""

    stage: Stage

    def append(self, run: str, seq: int, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        super().append(run, seq, event, decision)
        self.stage.happened()


class Stage:
    """One run, with everybody who has a part in it."""

    def __init__(self, policy: Policy, played: Sequence[Played]) -> None:
        self.policy, self.played = policy, played
        self.events = [step.event for step in played]
        self.marks = [asyncio.Event() for _ in range(len(played) + 1)]
        self.passed = 0
        self.began = 0.0

    def happened(self) -> None:
        """One more event is in the journal."""
        if self.passed == 0:
            self.began = asyncio.get_running_loop().time()
        self.passed += 1
        if self.passed < len(self.marks):
            self.marks[self.passed].set()

    async def turn(self, number: int | None) -> None:
        """Wait until it is this event's turn; what has none comes behind the last."""
        await self.marks[-1 if number is None else number].wait()
        if number is None:
            return
        left = self.began + (self.events[number].at - self.events[0].at) / 1000 - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, left))

    def place(self, kind: type | tuple[type, ...], **fields: Any) -> int | None:
        """Which event is of this kind, with these fields?"""
        for number, event in enumerate(self.events):
            if isinstance(event, kind) and all(getattr(event, name) == value for name, value in fields.items()):
                return number
        return None

    # ---- those who have a part

    async def before_the_wire(self, request: Any, context: CallContext) -> None:
        """An attempt goes out when what comes back is next; a failure of the host's own happens here."""
        number = self.place((e.ModelReplied, e.ModelFailed), call=context.call, attempt=context.attempt)
        await self.turn(number)
        event = self.events[number] if number is not None else None
        if isinstance(event, e.ModelFailed) and event.reason == "host":
            raise RuntimeError("as it was found")

    def tools(self) -> list[Tool]:
        """Every tool that is asked for and registered; each ends as it did."""
        replies = [event for event in self.events if isinstance(event, e.ModelReplied)]
        kinds = {call.name: call.kind for reply in replies for call in reply.calls if call.registered}

        async def tool(context: ToolContext, key: str = "") -> Any:
            number = self.place(e.ToolEnded, id=context.id, attempt=context.attempt)
            await self.turn(number)
            event = self.events[number] if number is not None else None
            if not isinstance(event, e.ToolEnded):
                return f"result {key}"
            if event.status in ("cancelled", "timed_out"):
                await asyncio.sleep(1e9)  # until it is cut
            if event.status != "ok":
                raise RuntimeError("as it was found")
            if event.ends == "stop":
                raise StopRun("as it was found")
            return Answer("The answer.") if event.ends else f"result {event.result}"

        return [
            Tool(tool, name=name, external=kind == "external", handoff=kind == "handoff")
            for name, kind in sorted(kinds.items())
            if kind != "hosted"
        ]

    def functions(self) -> Mapping[str, Any]:
        """The host's functions: they answer, choose a step or fail in the order in which they did."""
        left = [number for number, event in enumerate(self.events) if isinstance(event, e.Resolved)]

        async def function(context: Any) -> str:
            number = left.pop(0) if left else None
            await self.turn(number)
            event = self.events[number] if number is not None else None
            if isinstance(event, e.Resolved) and event.status != "ok":
                raise RuntimeError("as it was found")
            return (event.step if isinstance(event, e.Resolved) else "") or "text"

        return dict.fromkeys((*self.policy.resolvers(), *self.policy.consultants()), function)

    async def person(self, request: ApprovalRequest) -> Any:
        """Answers as somebody did, once for each question about a limit."""
        kind = e.ApprovalGiven if request.kind == "tool" else e.ExtensionAnswered
        number = next(
            (n for n, x in enumerate(self.events) if n >= self.passed and isinstance(x, kind) and x.id == request.id),
            None,
        )
        await self.turn(number)
        event = self.events[number] if number is not None else None
        if isinstance(event, e.ExtensionAnswered) and event.answer == "granted":
            return event.amount or True
        return event.answer if isinstance(event, e.ApprovalGiven | e.ExtensionAnswered) else True

    async def cancelling(self, handle: Any) -> None:
        """Somebody ends the run where it was ended."""
        number = self.place(e.Cancelled)
        if number is not None:
            await self.turn(number)
            handle.cancel(self.events[number].cause)  # type: ignore[union-attr]


def scripted(played: Sequence[Played]) -> list[dict[str, Any]]:
    """The replies of a rehearsed model that lead to these events, for what goes over the wire.

    Raises:
        Cannot: no model does this, or nobody whom our driver listens to.
    """
    replies: list[dict[str, Any]] = []
    asked: set[str] = set()
    for before, (event, decision, *_) in zip((played[0], *played), played, strict=False):
        match event:
            case e.PoolsSeen() | e.SpawnRequested():
                raise Cannot("a tree above or below the run: this driver is alone")
            case e.RunStarted(profile=profile):
                if "retract" not in profile:
                    raise Cannot("a host that cannot take shown text back")
            case e.CallRequested(call=call, at=at):
                if call in asked:
                    raise Cannot("an attempt that was lost is asked for again: ours is made again unasked")
                if at > before.event.at:
                    raise Cannot("time passes before a call is asked for: ours is at once")
                if event.model == "a model without a price":
                    raise Cannot("a model without a price: our driver does not begin")
                asked.add(call)
            case e.RetryDue(at=at):
                if isinstance(before.decision, d.Retry) and at > before.decision.not_before:
                    raise Cannot("a further attempt is asked for when it is overdue: ours is when it is due")
            case e.Tick():
                if isinstance(before.event, e.RunStarted):
                    raise Cannot("time passes before a call is asked for: ours is at once")
                if isinstance(decision, d.Stop):
                    raise Cannot("what is in flight at a deadline goes on: ours is cut by then, and its end told")
            case e.UsageReported():
                raise Cannot("usage told in pieces")
            case e.ModelReplied():
                replies.append(_reply(event))
            case e.ModelFailed():
                replies += _failure(event)
    return replies


def _reply(event: e.ModelReplied) -> dict[str, Any]:
    if event.usage is None:
        raise Cannot("no usage is told: our driver tells its own guess")
    calls = [
        {"tool": c.name, "args": "{" if c.problem else {"key": c.args}, "hosted": c.kind == "hosted"}
        for c in event.calls
    ]
    said = {"calls": calls} if calls else {"text": "Done." if event.text else ""}
    if calls and event.text:
        said["text"] = "Done."  # type: ignore[assignment]
    if event.finish not in ("stop", "tool_calls"):
        said["finish"] = event.finish  # type: ignore[assignment]
    return {**said, "usage": {"input": event.usage.input, "output": event.usage.output}}


def _failure(event: e.ModelFailed) -> list[dict[str, Any]]:
    if event.reason in ("aborted", "host"):  # nothing comes back: it was cut, or never went out
        return []
    if event.partial != "none":
        raise Cannot("an attempt that fails after text was shown")
    if event.usage and (event.usage.input or event.usage.output):
        raise Cannot("a failed attempt that tells what it has used: an answer of the provider does not")
    if event.reason in SHAPED:
        return [{"fail": event.reason}]
    if event.reason in OTHERWISE:
        return [OTHERWISE[event.reason]]
    raise Cannot(f"a failure of the kind `{event.reason}`")


def earlier(store: SqliteStore, policy: Policy, start: e.RunStarted) -> None:
    """A run of the thread that has used so much before."""
    assert start.thread_used is not None
    text, outcome = policy.model_dump_json(), Outcome("completed", used=start.thread_used)
    store.begin(RunRecord("earlier", text, 0, thread=start.thread))
    SqliteStore.append(store, "earlier", 0, e.RunStarted(0, "earlier", start.thread), d.End(1, outcome))


async def _led(stage: Stage, journal: Path, loop: VirtualLoop) -> None:
    behind = {"text": "Done.", "times": "always", "usage": {"input": 0, "output": 0}}
    replies, start = scripted(stage.played), stage.events[0]
    assert isinstance(start, e.RunStarted)
    odd = any(call.get("hosted") for reply in replies for call in reply.get("calls", ()))
    wire = "anthropic" if odd or any(reply.get("finish") == "pause" for reply in replies) else "openai"
    async with Rehearsal(Script.of(*replies, behind)) as server:
        spec, url = (wire, server.url if wire == "anthropic" else f"{server.url}/v1")
        model = next((known.model for known in start.clients if known.model), "rehearsed")
        client = from_spec(f"{spec}:{model}", base_url=url)
        store = _Told(journal)
        store.stage = stage
        driver = Driver(
            stage.policy,
            dict.fromkeys(("main", *(known.name for known in start.clients)), client),
            stage.tools(),
            allow_missing_clients=True,
            journal=store,
            resolvers=stage.functions(),
            approver=stage.person,
            request_processors=[stage.before_the_wire],
            clock=loop.clock,
        )
        try:
            if start.thread_used is not None:
                earlier(store, stage.policy, start)
            handle = driver.start("Go.", run_id="run", thread=start.thread)
            ending = asyncio.ensure_future(stage.cancelling(handle))
            await handle
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending
        finally:
            await driver.aclose()
            store.close()


def led(policy: Policy, played: Sequence[Played], journal: Path) -> None:
    """Lead our driver along this run. Raises ``Cannot`` where it never goes that way, ``Stuck`` where it did not."""
    scripted(played)

    async def main(loop: VirtualLoop) -> None:
        await _led(Stage(policy, played), journal, loop)

    in_virtual_time(0, main)
