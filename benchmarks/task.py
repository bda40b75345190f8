"""The decision task: six model calls and five tool rounds under limits of 6 and 5, and who else can decide it.

``Counter`` is what a careful person writes for the eleven questions of the task ("may I call the model?",
"a tool round has ended") and nothing else: the anchor. ``Twin`` is the same as a mutable object for the
protocol that ours speaks: 22 events with identities, which it checks, and the same decision records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.core.decisions import Call, Continue, End, Execute, Illegal, RunTools
from engine.core.events import CallRequested, ModelReplied, Proposed, RunStarted, ToolEnded, ToolRequested
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Policy
from engine.core.state import NO_TIME, LimitHit, Outcome, Used
from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS, DEFAULT_INSTRUCTION

CALLS, ROUNDS = 6, 5
MODEL, TOOL = 0, 1
ALLOW, FINAL, DENY = 0, 1, 2

LIMITS = (
    Limit(resource="llm_calls", max=CALLS, then=(Finalize(),)),
    Limit(resource="tool_iterations", max=ROUNDS, then=(Finalize(),)),
)

QUESTIONS = ((MODEL, "", ""), (TOOL, "search", "{}")) * ROUNDS + ((MODEL, "", ""),)
"""The task as eleven questions: (kind, tool, arguments)."""

ANSWERS = (ALLOW,) * (2 * ROUNDS) + (FINAL,)

CLIENT = "main"

TOOL_NAME = "search"

STARTED = RunStarted(0, "run")

Made = tuple[type, tuple[Any, ...]]
"""An event's class and its fields by position."""


def policy(*more: Limit, **parts: Any) -> Policy:
    """The policy of the task, with more limits and other statements."""
    return Policy(name="task", limits=(*LIMITS, *more), **parts)


def made(usage: Usage | None = None, model: str = "") -> tuple[Made, ...]:
    """The 22 events of the run, as a host would make them: a call, a reply, a tool's start and its end, five times."""
    events: list[Made] = []
    for k in range(1, CALLS + 1):
        at, id = 100 * k, f"{k}.0"
        events.append((CallRequested, (at, str(k), CLIENT, model)))
        if k < CALLS:
            calls = (Proposed(id, TOOL_NAME, "{}"),)
            events.append((ModelReplied, (at + 10, str(k), 1, "tool_calls", False, calls, usage)))
            events.append((ToolRequested, (at + 11, id, TOOL_NAME, "{}")))
            events.append((ToolEnded, (at + 20, id)))
        else:
            events.append((ModelReplied, (at + 10, str(k), 1, "stop", True, (), usage)))
    return tuple(events)


def built(events: Iterable[Made]) -> tuple[Any, ...]:
    """The events themselves."""
    return tuple(kind(*fields) for kind, fields in events)


class Counter:
    """The anchor: slots, counters, ifs, one method call a question. Neither pure nor replayable."""

    __slots__ = ("calls", "final", "rounds")

    def __init__(self) -> None:
        self.calls = 0
        self.rounds = 0
        self.final = False

    def step(self, question: tuple[int, str, str]) -> int:
        kind, _tool, _arguments = question
        if kind == MODEL:
            if self.final or self.calls >= CALLS:
                return DENY
            self.calls += 1
            if self.calls == CALLS or self.rounds >= ROUNDS:
                self.final = True
                return FINAL
            return ALLOW
        self.rounds += 1
        return ALLOW


class MeteredCounter(Counter):
    """The anchor with tokens, money, time and two thresholds: what a careful person adds for them.

    The limits are those of ``benchmarks.decision.amounts_policy``: what may be used, and that less the reserve.
    """

    __slots__ = ("cost", "tokens", "told", "warned")

    def __init__(self) -> None:
        super().__init__()
        self.tokens = self.cost = 0
        self.warned = self.told = False

    def ask(self, question: tuple[int, str, str], at: int, usage: Usage) -> int:
        kind, _tool, _arguments = question
        if kind == MODEL:
            if self.final or self.calls >= CALLS or self._beyond(at, 1_000_000, 50_000_000, 3_600_000):
                return DENY
            self.calls += 1
            if self.calls == CALLS or self.rounds >= ROUNDS or self._beyond(at, 995_000, 49_990_000, 3_590_000):
                self.final = True
                return FINAL
            return ALLOW
        self.rounds += 1
        self.tokens += usage.input + usage.output
        fresh = usage.input - usage.cached
        self.cost -= -(fresh * 2_500_000 + usage.cached * 1_250_000 + usage.output * 10_000_000) // 1_000_000
        if not self.warned and self.tokens >= 800_000:
            self.warned = True
        if not self.told and self.cost >= 45_000_000:
            self.told = True
        return ALLOW

    def _beyond(self, at: int, tokens: int, cost: int, wall: int) -> bool:
        return self.tokens >= tokens or self.cost >= cost or at >= wall


class Twin:
    """The same limits behind the same events and decisions, by hand, as one mutable object.

    Knows nothing of retries, deadlines, several tools at once, tool rules, notes or usage.
    """

    __slots__ = ("at", "call", "calls", "executions", "final", "n", "open", "outcome", "rounds", "run", "started")

    def __init__(self, run: str) -> None:
        self.run = run
        self.at = self.n = self.calls = self.rounds = self.executions = 0
        self.call = ""
        self.open = ""
        self.started = False
        self.final = False
        self.outcome: Outcome | None = None

    def step(self, event: Any) -> Any:
        if event.at > self.at:
            self.at = event.at
        kind = event.__class__
        if kind is CallRequested:
            return self._call_requested(event)
        if kind is ModelReplied:
            return self._model_replied(event)
        if kind is ToolRequested:
            if event.id != self.open:
                return Illegal(f"tool call {event.id} is not open")
            self.started = True
            return Execute(self.n, 0, event.id, 1, NO_TIME, "default: execute")
        if kind is ToolEnded:
            if event.id != self.open or not self.started:
                return Illegal(f"tool call {event.id} was not started")
            self.open = ""
            return _NEXT
        return Illegal(f"{kind.__name__} is no event")

    def _call_requested(self, event: CallRequested) -> Any:
        if self.outcome is not None:
            return End(self.n, self.outcome, (), self.outcome.because)
        if self.call or self.open:
            return Illegal(f"call {event.call} requested while the run is busy")
        self.n += 1
        self.calls += 1
        self.call = event.call
        deadline = self.at + DEFAULT_ATTEMPT_WALL_MS
        if self.calls < CALLS and self.rounds < ROUNDS:
            return Call(self.n, event.call, 1, event.client, deadline, "default: call", (), event.max_output)
        self.final = True
        which = "llm_calls" if self.calls == CALLS else "tool_iterations"
        text = DEFAULT_INSTRUCTION.format(resource=which)
        because = f"limit {which}"
        return Call(
            self.n,
            event.call,
            1,
            event.client,
            deadline,
            because,
            (),
            event.max_output,
            True,
            "strip",
            text,
            "",
            (),
            which,
        )

    def _model_replied(self, event: ModelReplied) -> Any:
        if event.call != self.call or event.attempt != 1:
            return Illegal(f"nobody asked for call {event.call}")
        self.call = ""
        self.n += 1
        if self.final or not event.calls:
            return self._end(event)
        self.rounds += 1
        self.executions += 1
        (proposed,) = event.calls
        self.open, self.started = proposed.id, False
        run = Execute(self.n, 0, proposed.id, 1, NO_TIME, "default: execute")
        return RunTools(self.n, self.rounds, (run,), False, "default: execute")

    def _end(self, event: ModelReplied) -> End:
        which, used, most = ("llm_calls", self.calls, CALLS)
        hit = LimitHit(which, "run", self.run, used, most)
        spent = Used(self.calls, self.calls, self.rounds, self.executions)
        because = f"limit {which}"
        self.outcome = Outcome("finalized", which, "", hit, "main", event.ref, False, spent, "", because)
        return End(self.n, self.outcome, (), because)


_NEXT = Continue("default: round")
