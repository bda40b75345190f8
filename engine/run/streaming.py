"""A run as its host may follow it: events for people and user interfaces, while it goes on.

They are derived from the events and decisions of the core; nothing is decided here, and nobody has to listen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import Core
from engine.core.decisions import AnyDecision, Note
from engine.core.messages import Message, Usage
from engine.core.state import State
from engine.core.vocabulary import RESOURCES
from engine.run.effects import Effect, ModelCall, ToolRun
from engine.run.result import RunResult


class StreamEvent(Struct, frozen=True, tag_field="type"):
    """Base of all events of a stream."""


class RunBegan(StreamEvent, frozen=True, tag="run_began"):
    """A run goes on from here: its id is what ``resume`` takes."""

    run: str


class CallStarted(StreamEvent, frozen=True, tag="call_started"):
    """An attempt at a model starts. ``why`` is the reason of a ``final`` call."""

    call: str
    attempt: int
    client: str
    final: bool
    why: str
    because: str


class TextDelta(StreamEvent, frozen=True, tag="text_delta"):
    """A piece of text, as it arrives. ``TextRetracted`` takes back what bears the same call and attempt."""

    call: str
    attempt: int
    text: str


class TextRetracted(StreamEvent, frozen=True, tag="text_retracted"):
    """The attempt failed and the run goes on: forget its text."""

    call: str
    attempt: int


class CallEnded(StreamEvent, frozen=True, tag="call_ended"):
    """An attempt ended: with ``text`` and the names of the ``tools`` it asks for, or with ``error`` (a reason)."""

    call: str
    attempt: int
    text: str = ""
    tools: tuple[str, ...] = ()
    usage: Usage | None = None
    error: str = ""
    message: str = ""


class RetryPlanned(StreamEvent, frozen=True, tag="retry_planned"):
    """A further attempt of the call follows at ``not_before`` (ms since 1970)."""

    call: str
    attempt: int
    not_before: int


class ToolStarted(StreamEvent, frozen=True, tag="tool_started"):
    """A tool starts; ``arguments`` is the JSON the model sent."""

    id: str
    name: str
    arguments: str


class ToolFinished(StreamEvent, frozen=True, tag="tool_finished"):
    """A tool has ended, with the text the model will read."""

    id: str
    name: str
    status: str
    text: str


class ToolRefused(StreamEvent, frozen=True, tag="tool_refused"):
    """A tool call was not executed: the model reads ``text`` in its place."""

    id: str
    name: str
    text: str
    why: str
    because: str


class Noted(StreamEvent, frozen=True, tag="noted"):
    """A threshold, an extension, a warning."""

    note: Note


class Budget(StreamEvent, frozen=True, tag="budget"):
    """What a limit stands at, sent whenever that changes. ``limit`` is its name in the policy; ``unit`` is
    ``count``, ``money`` (micro-dollars) or ``duration`` (ms)."""

    limit: str
    resource: str
    unit: str
    used: int
    maximum: int


class RunEnded(StreamEvent, frozen=True, tag="run_ended"):
    """The last event of a stream."""

    result: RunResult


AnyStreamEvent = (
    RunBegan
    | CallStarted
    | TextDelta
    | TextRetracted
    | CallEnded
    | RetryPlanned
    | ToolStarted
    | ToolFinished
    | ToolRefused
    | Noted
    | Budget
    | RunEnded
)


class Narrator:
    """Turns what happens to a run into stream events and hands them to ``emit``."""

    streams = True

    def __init__(self, core: Core, get: Callable[[str], Message], emit: Callable[[AnyStreamEvent], None]) -> None:
        self._core = core
        self._get = get
        self._emit = emit
        self._names: dict[str, str] = {}
        self._budgets: dict[int, tuple[int, int]] = {}

    def replayed(self, event: e.AnyEvent, state: State) -> None:
        """An event of the journal of a run that is being resumed: not told again, only where the budgets stand."""
        if isinstance(event, e.ModelReplied):
            self._names.update((p.id, p.name) for p in event.calls)
        self._stand(state, event.at)

    def decided(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        self._happened(event, decision)
        if isinstance(decision, d.RunTools):
            for verdict in decision.verdicts:
                if isinstance(verdict, d.Reply):
                    self._refused(verdict)
        elif isinstance(decision, d.Reply):
            self._refused(decision)
        elif isinstance(decision, d.Retry):
            self._emit(RetryPlanned(decision.call, decision.attempt, decision.not_before))
        elif isinstance(decision, d.Stop | d.End):
            for reply in decision.close:
                self._refused(reply)
        for note in decision.notes:
            self._emit(Noted(note))
        self._stand(state, event.at)

    def started(self, effect: Effect) -> None:
        if isinstance(effect, ModelCall):
            call = effect.decision
            self._emit(CallStarted(call.call, call.attempt, call.client, call.final, call.why, call.because))
        elif isinstance(effect, ToolRun):
            self._emit(ToolStarted(effect.decision.id, effect.call.name, effect.call.arguments))

    def delta(self, effect: ModelCall, text: str) -> None:
        self._emit(TextDelta(effect.decision.call, effect.decision.attempt, text))

    def noted(self, note: Note) -> None:
        self._emit(Noted(note))

    def _happened(self, event: e.AnyEvent, decision: AnyDecision) -> None:
        if isinstance(event, e.ModelReplied):
            message = self._get(event.ref)
            self._names.update((p.id, p.name) for p in event.calls)
            tools = tuple(p.name for p in event.calls)
            self._emit(CallEnded(event.call, event.attempt, message.text, tools, event.usage))
        elif isinstance(event, e.ModelFailed):
            content = self._get(event.ref) if event.ref else Message("assistant")
            said = (content.opaque or {}).get("error", "")
            self._emit(CallEnded(event.call, event.attempt, content.text, (), event.usage, event.reason, said))
            if event.partial == "delivered" and not isinstance(decision, d.End | d.Stop | d.Wait):
                self._emit(TextRetracted(event.call, event.attempt))
        elif isinstance(event, e.ToolEnded) and not isinstance(decision, d.Execute):
            text = self._get(event.ref).text if event.ref else ""
            self._emit(ToolFinished(event.id, self._names.get(event.id, ""), event.status, text))

    def _refused(self, reply: d.Reply) -> None:
        text = self._get(reply.ref).text if reply.ref else reply.text
        self._emit(ToolRefused(reply.id, self._names.get(reply.id, ""), text, reply.why, reply.because))

    def _stand(self, state: State, at: int) -> None:
        core = self._core
        for plan in core.plans:
            used, maximum = core.standing(plan, state.vars, state.book, at)
            if self._budgets.get(plan.index) != (used, maximum):
                self._budgets[plan.index] = (used, maximum)
                unit = RESOURCES[plan.resource].unit
                self._emit(Budget(plan.limit.id, plan.resource, unit, used, maximum))


class Stream:
    """The events of one run, for one reader. It ends with ``RunEnded``, or when the run broke down."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[AnyStreamEvent | None] = asyncio.Queue()

    def emit(self, event: AnyStreamEvent) -> None:
        self._events.put_nowait(event)

    def finish(self) -> None:
        self._events.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[AnyStreamEvent]:
        while (event := await self._events.get()) is not None:
            yield event
        self.finish()  # whoever reads again finds the end again
