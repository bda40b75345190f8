"""What the time alone ends says by which rule: the line of the policy that gave so much of it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.events import AnyEvent
from engine.core.messages import Usage
from engine.core.policy import Finalize, Limit, Policy, ToolRule
from engine.core.state import State
from engine.core.step import compile

SHORT = Limit(resource="wall", max=500, counting_approvals=True)
LONG = Limit(resource="wall", max=5_000, counting_approvals=True)
STILL = Limit(resource="wall", max=500)
ASKS = ToolRule(glob="a", ask=True, ask_within=1_000)
ALWAYS = ToolRule(glob="a", ask=True)
TIMED = ToolRule(glob="a", timeout=1_000)
TOOL = 'tool "a"'
WALL = "limit wall"


def asked(tool: ToolRule, *limits: Limit, kind: Any = "function") -> tuple[Any, State, d.RunTools]:
    """A run whose only call, of the tool `a`, is with people."""
    compiled = compile(Policy(name="p", limits=limits, tools=(tool,)))
    state, decision = compiled.initial, None
    events: list[AnyEvent] = [
        e.RunStarted(0, "run"),
        e.CallRequested(0, "1", "main"),
        e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "a", "k", kind),), usage=Usage(1, 1)),
    ]
    for event in events:
        state, decision = compiled.step(state, event)
    assert isinstance(decision, d.RunTools)
    return compiled.step, state, decision


@pytest.mark.parametrize(
    ("tool", "limits", "kind", "why"),
    [
        (ASKS, (), "function", "expired"),
        (ASKS, (LONG,), "function", "expired"),
        (ASKS, (STILL,), "function", "expired"),
        (TIMED, (), "external", "timed_out"),
        (TIMED, (LONG,), "external", "timed_out"),
    ],
)
def test_what_a_tick_ends_names_the_rule_that_gave_the_time(
    tool: ToolRule, limits: tuple[Limit, ...], kind: str, why: str
) -> None:
    step, state, decision = asked(tool, *limits, kind=kind)
    (ask,) = decision.verdicts
    assert isinstance(ask, d.Ask)
    assert ask.until == 1_000
    assert isinstance(step(state, e.Tick(999))[1], d.Wait)
    over = step(state, e.Tick(1_000))[1]
    assert (over.because, [(v.why, v.because) for v in over.verdicts]) == (TOOL, [(why, TOOL)])


@pytest.mark.parametrize(("tool", "kind", "why"), [(ALWAYS, "function", "expired"), (TIMED, "external", "timed_out")])
def test_a_wall_that_goes_on_is_what_ends_the_time_to_answer(tool: ToolRule, kind: str, why: str) -> None:
    reserved = Limit(resource="wall", max=500, reserve=100, counting_approvals=True, then=(Finalize(),))
    step, state, _ = asked(tool, reserved, kind=kind)
    over = step(state, e.Tick(400))[1]
    assert (over.because, [(v.why, v.because) for v in over.verdicts]) == (WALL, [(why, WALL)])


def test_a_call_that_was_deferred_names_the_timeout_of_its_tool() -> None:
    step, state, _ = asked(TIMED)
    for event in (e.ToolRequested(0, "1.0"), e.ToolEnded(5, "1.0", status="deferred")):
        state, _ = step(state, event)
    over = step(state, e.Tick(1_005))[1]
    assert (over.because, [(v.why, v.because) for v in over.verdicts]) == (TOOL, [("timed_out", TOOL)])


@pytest.mark.parametrize("answer", ["refused", "expired", "nobody"])
@pytest.mark.parametrize("tool", [ASKS, ALWAYS])
@pytest.mark.parametrize("limits", [(), (LONG,), (STILL,)])
def test_what_nobody_has_allowed_names_the_rule_that_asks(
    answer: Any, tool: ToolRule, limits: tuple[Limit, ...]
) -> None:
    step, state, _ = asked(tool, *limits)
    over = step(state, e.ApprovalGiven(10, "1.0", answer))[1]
    assert (over.because, [(v.why, v.because) for v in over.verdicts]) == (TOOL, [(answer, TOOL)])


def test_an_answer_that_comes_too_late_is_none_by_the_same_rule() -> None:
    step, state, _ = asked(ASKS)
    over = step(state, e.ApprovalGiven(1_000, "1.0", "granted"))[1]
    assert (over.because, [(v.why, v.because) for v in over.verdicts]) == (TOOL, [("expired", TOOL)])


def test_where_nothing_else_would_be_done_the_run_ends_by_its_wall() -> None:
    step, state, _ = asked(ALWAYS, SHORT)
    over = step(state, e.Tick(500))[1]
    assert isinstance(over, d.End)
    assert (over.because, over.outcome.reason) == (WALL, "wall")
