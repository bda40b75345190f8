"""A policy of full size (five limits, two breakers, a ladder of failures) beside the same written by hand.

The twin is a mutable object for the same 22 events and the same records: it counts, keeps both breakers and walks
the ladder by hand, for one fixed policy. It is checked for deciding alike before anything is timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.decision import decisions, ready
from benchmarks.harness import Case, Effort, measure
from benchmarks.memory import own_bytes
from benchmarks.report import Row, Section, verdict
from benchmarks.task import CLIENT, STARTED
from engine.core.decisions import Call, Continue, Execute, Illegal, Note, Retry, RunTools
from engine.core.events import (
    CallRequested,
    ModelFailed,
    ModelReplied,
    Proposed,
    RetryDue,
    ToolEnded,
    ToolRequested,
)
from engine.core.ladders import Fallback, Finalize
from engine.core.ladders import Retry as RetryStep
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.statements import Breaker, Detector, FailureRule, Limit
from engine.core.step import compile, replay
from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS

TWIN, OURS = "hand-written twin, full size", "ours, full size, event ready"
QUIET = ", nothing fails"
CALLS, ATTEMPTS, ROUNDS, TOOLS, UNKNOWN = 20, 30, 15, 40, 3
SAME, ROW = 3, 5
"""Failures that trip the two breakers: with equal arguments, and of any kind."""
TIMES, LEAST, MOST = 2, 1_000, 30_000

POLICY = Policy(
    name="full",
    limits=(
        Limit(resource="llm_calls", max=CALLS, then=(Finalize(),)),
        Limit(resource="llm_attempts", max=ATTEMPTS),
        Limit(resource="tool_iterations", max=ROUNDS, then=(Finalize(),)),
        Limit(resource="tool_calls", max=TOOLS),
        Limit(resource="unknown_tools", max=UNKNOWN),
    ),
    breakers=(
        Breaker(glob="search", trips=(Detector(kind="same_args", n=SAME),), reset=60_000, probe=1),
        Breaker(glob="*", trips=(Detector(kind="failures", n=ROW),), reset=60_000, probe=1),
    ),
    failures=(
        FailureRule(
            reasons=("rate_limit",),
            then=(
                RetryStep(times=TIMES, least=LEAST, most=MOST, jitter=False),
                Fallback(clients=("spare",)),
                Finalize(),
            ),
        ),
    ),
)


def events(*, failing: bool) -> tuple[Any, ...]:
    """Five rounds of one tool. ``failing``: it fails in the second, and an attempt fails before the last: 22 events."""
    out: list[Any] = []
    for k in range(1, 6):
        at, id, calls = 10_000 * k, f"{k}.0", (Proposed(f"{k}.0", "search", f"key {k}"),)
        out.append(CallRequested(at, str(k), CLIENT))
        attempt = 1
        if failing and k == 5:
            out.append(ModelFailed(at + 5, "5", 1, "rate_limit"))
            out.append(RetryDue(at + 5 + LEAST, "5"))
            at, attempt = at + 5 + LEAST, 2
        out.append(ModelReplied(at + 10, str(k), attempt, "tool_calls", calls=calls))
        out.append(ToolRequested(at + 11, id, "search", calls[0].args))
        out.append(ToolEnded(at + 20, id, 1, "failed" if failing and k == 2 else "ok"))
    return tuple(out)


class Twin:
    """See the module. ``open`` until a breaker's reset is kept by tool and breaker, as the policy's is."""

    __slots__ = (
        "args",
        "at",
        "attempt",
        "attempts",
        "call",
        "calls",
        "client",
        "failures",
        "last",
        "n",
        "open",
        "pending",
        "retried",
        "rounds",
        "started",
        "streak",
        "tool",
        "tools",
        "tripped",
        "waiting",
    )

    def __init__(self) -> None:
        self.at = self.n = self.calls = self.attempts = self.rounds = self.tools = 0
        self.call = self.client = self.open = self.tool = self.args = self.pending = ""
        self.attempt = self.retried = 0
        self.started = self.waiting = False
        self.last: dict[str, str] = {}
        self.streak: dict[str, int] = {}
        self.failures: dict[str, int] = {}
        self.tripped: dict[str, int] = {}

    def step(self, event: Any) -> Any:
        if event.at > self.at:
            self.at = event.at
        kind = event.__class__
        if kind is CallRequested:
            return self._called(event)
        if kind is ModelReplied:
            return self._replied(event)
        if kind is ToolRequested:
            if event.id != self.open:
                return Illegal(f"tool call {event.id} is not open")
            if self._switched_off(self.tool):
                raise NotImplementedError
            self.started = True
            return Execute(self.n, 0, event.id, 1, NO_TIME, "default: execute")
        if kind is ToolEnded:
            return self._ended(event)
        if kind is ModelFailed:
            return self._failed(event)
        if kind is RetryDue:
            return self._due(event)
        return Illegal(f"{kind.__name__} is no event")

    def _called(self, event: CallRequested) -> Any:
        if self.call or self.open or self.pending:
            return Illegal(f"call {event.call} requested while the run is busy")
        if self.calls >= CALLS - 1 or self.attempts >= ATTEMPTS or self.rounds >= ROUNDS:
            raise NotImplementedError
        self.calls += 1
        self.attempt, self.retried = 0, 0
        self.call, self.client = event.call, event.client
        return self._attempt("default: call", event.max_output)

    def _attempt(self, because: str, most: int | None) -> Call:
        self.n += 1
        self.attempts += 1
        self.attempt += 1
        deadline = self.at + DEFAULT_ATTEMPT_WALL_MS
        return Call(self.n, self.call, self.attempt, self.client, deadline, because, (), most)

    def _failed(self, event: ModelFailed) -> Any:
        if event.call != self.call or event.attempt != self.attempt:
            return Illegal(f"nobody asked for call {event.call}")
        if event.reason != "rate_limit" or self.retried >= TIMES or self.attempts >= ATTEMPTS:
            raise NotImplementedError
        delay = min(MOST, LEAST << self.retried)
        self.retried += 1
        self.n += 1
        self.waiting = True
        because = "on llm_failure rate_limit"
        text = f"retrying in {delay // 1000}s ({self.retried} of {TIMES}): {event.reason}"
        note = Note("retry", text, used=self.retried, maximum=TIMES, because=because)
        return Retry(self.n, event.call, self.attempt + 1, self.client, self.at + delay, because, (note,))

    def _due(self, event: RetryDue) -> Any:
        if event.call != self.call or not self.waiting:
            return Illegal(f"retry of call {event.call} is not due")
        self.waiting = False
        return self._attempt("default: attempt", None)

    def _replied(self, event: ModelReplied) -> Any:
        if event.call != self.call or event.attempt != self.attempt or self.waiting:
            return Illegal(f"nobody asked for call {event.call}")
        if not event.calls or self.rounds >= ROUNDS:
            raise NotImplementedError
        self.call = ""
        self.n += 1
        self.rounds += 1
        (proposed,) = event.calls
        if not proposed.registered or proposed.problem or self.tools >= TOOLS or self._switched_off(proposed.name):
            raise NotImplementedError
        self.tools += 1
        self.open, self.tool, self.args, self.started = proposed.id, proposed.name, proposed.args, False
        run = Execute(self.n, 0, proposed.id, 1, NO_TIME, "default: execute")
        return RunTools(self.n, self.rounds, (run,), False, "default: execute")

    def _switched_off(self, tool: str) -> bool:
        tripped = self.tripped.get(tool)
        return tripped is not None and self.at < tripped + 60_000

    def _ended(self, event: ToolEnded) -> Any:
        if event.id != self.open or not self.started:
            return Illegal(f"tool call {event.id} was not started")
        self.open = ""
        tool = self.tool
        if event.status == "ok":
            if tool in self.failures:
                del self.failures[tool], self.streak[tool], self.last[tool]
            return _NEXT
        same = self.last.get(tool) == self.args
        self.last[tool] = self.args
        self.streak[tool] = self.streak[tool] + 1 if same else 1
        self.failures[tool] = self.failures.get(tool, 0) + 1
        if self.streak[tool] >= SAME or self.failures[tool] >= ROW:
            self.tripped[tool] = self.at
        return _NEXT


_NEXT = Continue("default: round")


def sections(effort: Effort) -> Iterator[Section]:
    compiled, reference = compile(POLICY), compile(POLICY, reference=True)
    cases = []
    for name, failing in (("", True), (QUIET, False)):
        run = events(failing=failing)
        _agree(compiled, reference, run)
        cases.append(Case(TWIN + name, partial(_twin, run), len(run)))
        cases.append(Case(OURS + name, ready(compiled, run), len(run)))
    times = measure(cases, effort)
    section = Section(
        "A policy of full size",
        "Five limits, two breakers that match the tool, a ladder of failures; 22 events with a tool that fails once "
        "and an attempt that is retried. The twin does the same by hand, as a mutable object for this one policy; the "
        "second pair of rows is the same run where nothing fails.",
        "step",
        TWIN,
    )
    for name in ("", QUIET):
        section.timed(times, TWIN + name, anchor=TWIN + name)
        section.timed(times, OURS + name, anchor=TWIN + name, ratio=1.7)
    yield section
    yield _window()


def _twin(run: tuple[Any, ...]) -> None:
    step = Twin().step
    for event in run:
        step(event)


def _agree(compiled: Any, reference: Any, run: tuple[Any, ...]) -> None:
    """Whoever is timed must decide alike."""
    ours = decisions(compiled, (STARTED, *run))
    assert ours == decisions(reference, (STARTED, *run))
    by_hand = Twin()
    for event, decision in zip(run, ours[1:], strict=True):
        said = by_hand.step(event)
        assert said == decision, (event, said, decision)


def _window() -> Section:
    """What one more tool with an open window of ten outcomes adds to a state."""
    policy = Policy(name="w", breakers=(Breaker(glob="*", trips=(Detector(kind="failure_rate", n=10, percent=90),)),))
    compiled = compile(policy)
    sizes = []
    for tools in (1, 9):
        names = [f"tool_{i}" for i in range(tools)]
        state = replay(compiled, (STARTED, *_rounds(names, 10)))
        assert len(state.book.breakers) == tools
        sizes.append(own_bytes(state.book.breakers))
    grown = (sizes[1] - sizes[0]) // 8
    section = Section("A breaker's memory", "What each further tool with a window of ten outcomes adds.", "tool")
    section.rows.append(Row("a tool with a window of 10", f"{grown:,} B", bar="200 B", met=verdict(grown, grown, 200)))
    return section


def _rounds(names: list[str], times: int) -> Iterator[Any]:
    for k in range(1, times + 1):
        calls = tuple(Proposed(f"{k}.{i}", name, "key") for i, name in enumerate(names))
        yield CallRequested(10 * k, str(k), CLIENT)
        yield ModelReplied(10 * k + 1, str(k), 1, "tool_calls", calls=calls)
        for call in calls:
            yield ToolRequested(10 * k + 2, call.id, call.name)
            yield ToolEnded(10 * k + 3, call.id, 1, "failed" if k % 2 else "ok")
