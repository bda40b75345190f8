"""What lies between an object that answers eleven questions and ours: one thing more in each of these, by hand.

Every one decides the same run under the same two limits. What each adds is a thing that a host cannot do without once
it may crash, ask twice or run tools side by side; the last one by hand keeps its state apart, as ours does.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from benchmarks.task import ALLOW, CALLS, DENY, FINAL, ROUNDS, Twin
from engine.core.decisions import Call, Continue, Execute, RunTools
from engine.core.events import CallRequested, ModelReplied, ToolEnded, ToolRequested
from engine.core.state import NO_TIME
from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS


class Told:
    """The object again, told of all 22 events: a reply and the start of a tool are things of their own, for tools may
    be refused one by one, and one that has started must not be started again after a crash."""

    __slots__ = ("calls", "final", "rounds")

    def __init__(self) -> None:
        self.calls = self.rounds = 0
        self.final = False

    def step(self, event: Any) -> int:
        kind = event.__class__
        if kind is CallRequested:
            if self.final or self.calls >= CALLS:
                return DENY
            self.calls += 1
            if self.calls == CALLS or self.rounds >= ROUNDS:
                self.final = True
                return FINAL
            return ALLOW
        if kind is ModelReplied:
            if event.calls and not self.final:
                self.rounds += 1
                return ALLOW
            return FINAL
        if kind is ToolRequested or kind is ToolEnded:
            return ALLOW
        return DENY


class Checked:
    """The same, and it sees that each event is about the call or tool in hand: what comes twice, late or out of turn
    is not counted."""

    __slots__ = ("at", "call", "calls", "final", "open", "rounds", "started")

    def __init__(self) -> None:
        self.at = self.calls = self.rounds = 0
        self.call = self.open = ""
        self.final = self.started = False

    def step(self, event: Any) -> int:
        if event.at > self.at:
            self.at = event.at
        kind = event.__class__
        if kind is CallRequested:
            if self.final or self.call or self.open or self.calls >= CALLS:
                return DENY
            self.calls += 1
            self.call = event.call
            if self.calls == CALLS or self.rounds >= ROUNDS:
                self.final = True
                return FINAL
            return ALLOW
        if kind is ModelReplied:
            if event.call != self.call or event.attempt != 1:
                return DENY
            self.call = ""
            if self.final or not event.calls:
                return FINAL
            self.rounds += 1
            (proposed,) = event.calls
            self.open, self.started = proposed.id, False
            return ALLOW
        if kind is ToolRequested:
            if event.id != self.open:
                return DENY
            self.started = True
            return ALLOW
        if kind is ToolEnded:
            if event.id != self.open or not self.started:
                return DENY
            self.open = ""
            return ALLOW
        return DENY


class Kept(Struct, frozen=True, gc=False):
    """What the twin remembers, as one record that is made anew at each step."""

    at: int = 0
    n: int = 0
    calls: int = 0
    rounds: int = 0
    call: str = ""
    open: str = ""
    started: bool = False


_NEXT = Continue("default: round")
_NOTHING = Kept()


def pure(state: Kept, event: Any) -> tuple[Kept, Any]:
    """The twin's decisions without changing what it is given; the final call and what is illegal are the twin's."""
    at = max(event.at, state.at)
    kind = event.__class__
    if kind is CallRequested:
        if not (state.call or state.open) and state.calls < CALLS - 1 and state.rounds < ROUNDS:
            n, call, client = state.n + 1, event.call, event.client
            asked = Call(n, call, 1, client, at + DEFAULT_ATTEMPT_WALL_MS, "default: call", (), event.max_output)
            return Kept(at, n, state.calls + 1, state.rounds, call), asked
    elif kind is ModelReplied:
        if event.call == state.call and event.attempt == 1 and event.calls:
            n, rounds = state.n + 1, state.rounds + 1
            (proposed,) = event.calls
            run = Execute(n, 0, proposed.id, 1, NO_TIME, "default: execute")
            kept = Kept(at, n, state.calls, rounds, "", proposed.id)
            return kept, RunTools(n, rounds, (run,), False, "default: execute")
    elif kind is ToolRequested:
        if event.id == state.open:
            kept = Kept(at, state.n, state.calls, state.rounds, "", event.id, True)
            return kept, Execute(state.n, 0, event.id, 1, NO_TIME, "default: execute")
    elif kind is ToolEnded and event.id == state.open and state.started:
        return Kept(at, state.n, state.calls, state.rounds), _NEXT
    return _as_twin(state, event)


def _as_twin(state: Kept, event: Any) -> tuple[Kept, Any]:
    twin = Twin("run")
    twin.at, twin.n, twin.calls, twin.rounds, twin.executions = (
        state.at,
        state.n,
        state.calls,
        state.rounds,
        state.rounds,
    )
    twin.call, twin.open, twin.started, twin.final = state.call, state.open, state.started, state.calls == CALLS
    decision = twin.step(event)
    return Kept(twin.at, twin.n, twin.calls, twin.rounds, twin.call, twin.open, twin.started), decision


def told(events: tuple[Any, ...]) -> None:
    step = Told().step
    for event in events:
        step(event)


def checked(events: tuple[Any, ...]) -> None:
    step = Checked().step
    for event in events:
        step(event)


def kept(events: tuple[Any, ...]) -> None:
    state = _NOTHING
    for event in events:
        state, _ = pure(state, event)


def agree(events: tuple[Any, ...], ours: list[Any]) -> None:
    """Whoever is timed must decide alike: where ours has its final call and its end, the numbers say ``FINAL``."""
    state = _NOTHING
    for event, said in zip(events, ours, strict=True):
        state, decision = pure(state, event)
        assert decision == said, (event, decision, said)
    for each in (Told(), Checked()):
        answers = [each.step(event) for event in events]
        assert DENY not in answers
        assert [i for i, answer in enumerate(answers) if answer == FINAL] == [len(events) - 2, len(events) - 1]
