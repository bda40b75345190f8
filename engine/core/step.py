"""``compile(policy)``: the pure function ``step(state, event) -> (state, decision)``.

Total, deterministic, never raises for any event, reads no clock, performs no I/O and never
changes its input. Each event is decoded into the machine's fields, the machine reacts, and its
effect is encoded as a decision; ``reference=True`` lets the interpreter react instead of the
generated code, which must make no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from engine.core import admission, approvals, ends, executions, extending, hot_path, implied, replies, resolving, trees
from engine.core.core import Core
from engine.core.decisions import AnyDecision, Illegal, Note, Request
from engine.core.ends import suspended, wake_at
from engine.core.events import (
    AnyEvent,
    ApprovalGiven,
    CallRequested,
    Cancelled,
    ChildEnded,
    ExtensionAnswered,
    ModelFailed,
    ModelReplied,
    PoolsSeen,
    Resolved,
    RetryDue,
    RunStarted,
    SpawnRequested,
    Tick,
    ToolEnded,
    ToolRequested,
    UsageReported,
    WakeRequested,
)
from engine.core.machine.build import build
from engine.core.machine.interpret import Watch, functions
from engine.core.machine.to_python import Functions, source
from engine.core.policy import Policy
from engine.core.state import Book, LimitHit, Run, State, Used
from engine.core.suspension import decided, requests

Step = Callable[[State, AnyEvent], tuple[State, AnyDecision]]

_HANDLERS: dict[type, Callable[[Core, State, Any], tuple[State, AnyDecision]]] = {
    RunStarted: admission.run_started,
    CallRequested: executions.call_requested,
    Resolved: resolving.resolved,
    ModelReplied: implied.model_replied,
    ModelFailed: replies.model_failed,
    RetryDue: admission.retry_due,
    ToolRequested: implied.tool_requested,
    ToolEnded: executions.tool_ended,
    ApprovalGiven: approvals.approval_given,
    ExtensionAnswered: extending.extension_answered,
    UsageReported: ends.usage_reported,
    PoolsSeen: trees.pools_seen,
    SpawnRequested: trees.spawn_requested,
    WakeRequested: trees.spawn_requested,
    ChildEnded: trees.child_ended,
    Tick: approvals.tick,
    Cancelled: ends.cancelled,
}


class Compiled:
    """A policy ready to decide. ``initial`` is the state before ``RunStarted``."""

    def __init__(self, policy: Policy, *, reference: bool = False, watch: Watch | None = None) -> None:
        self.policy, self.watch = policy, watch
        self.machine = build(policy)
        reference = reference or watch is not None
        react = functions(self.machine, watch) if reference else Functions(self.machine, policy.name)
        self.core = Core(policy, react, self.machine)
        self.fingerprint = policy.fingerprint()
        self.initial = State(self.machine.initial, 0, 0, None, (), Book(Run("", 0)))
        general = _step(self.core)
        self._hot = "" if reference else hot_path.source(self.core)
        self.step = hot_path.load(self.core, self._hot, general) if self._hot else general

    @property
    def source(self) -> str:
        """The generated Python, to be read: the machine's functions, then ``step`` where the policy has its own."""
        return source(self.machine) + self._hot

    def used(self, state: State) -> Used:
        """Everything the run has used so far: counts, tokens, ``cost`` in micro-dollars."""
        return self.core.used(state.vars, state.book.spent)

    def requests(self, state: State) -> tuple[Request, ...]:
        """What a suspended run asks of people, or waits for from them; empty for any other."""
        return requests(self.core, state) if suspended(state) else ()

    def standings(self, state: State, at: int) -> list[LimitHit]:
        """Every limit with what its scope has used and its maximum as it stands at ``at`` (ms).

        Both in the limit's unit: a count, micro-dollars, or milliseconds.
        """
        return [self.core.hit(plan, state.vars, state.book, at) for plan in self.core.plans]


def compile(policy: Policy, *, reference: bool = False, watch: Watch | None = None) -> Compiled:
    """The policy's ``step``, with what it was made from.

    ``step(state, event)`` gives the state after the event and a decision; it is pure and never raises: what cannot
    happen in a state is answered with ``Illegal``, and the state stays. ``reference``: decide by the machine alone,
    without the fast way for ordinary turns; the decisions are the same. ``watch`` is told of each reaction of the
    machine, which decides alone then.
    """
    return Compiled(policy, reference=reference, watch=watch)


def _step(core: Core) -> Step:
    handlers = _HANDLERS

    def step(state: State, event: AnyEvent) -> tuple[State, AnyDecision]:
        handler = handlers.get(event.__class__)
        if handler is None:
            return state, Illegal(f"{type(event).__name__} is no event")
        if event.at < state.at:
            # A clock that went backwards: the event is read as if it came with the last one.
            note = Note("clock", f"the clock went back by {state.at - event.at} ms")
            state, decision = decided(core, handler, state, structs.replace(event, at=state.at))
            return state, structs.replace(decision, notes=(note, *decision.notes))
        return decided(core, handler, state, event)

    return step


def replay(compiled: Compiled, events: Iterable[AnyEvent]) -> State:
    """The state after these events: the fold of ``step``."""
    state = compiled.initial
    for event in events:
        state, _ = compiled.step(state, event)
    return state


__all__ = ["Compiled", "Step", "compile", "replay", "suspended", "wake_at"]
