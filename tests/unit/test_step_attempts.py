"""Attempts of tool calls: only what was started can end, and what was given up for a further attempt ends nothing."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Policy, ToolRule
from engine.core.state import State
from engine.core.step import Compiled, compile

ONE = e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "search"),))
TWO = e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "search"), e.Proposed("1.1", "search")))


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return compile(Policy(name="p"), reference=request.param)


def begun(compiled: Compiled, reply: e.ModelReplied, requests: int) -> State:
    state = compiled.initial
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1"), reply, *[e.ToolRequested(0, "1.0")] * requests):
        state, decision = compiled.step(state, event)
        assert not isinstance(decision, d.Illegal)
    return state


@pytest.mark.parametrize("reply", [ONE, TWO], ids=["one tool", "two tools"])
@pytest.mark.parametrize(("requests", "attempt"), [(0, 2), (1, 2), (1, 7), (2, 3), (1, 0), (2, -1)])
def test_what_was_never_started_cannot_end(
    compiled: Compiled, reply: e.ModelReplied, requests: int, attempt: int
) -> None:
    state = begun(compiled, reply, requests)
    after, decision = compiled.step(state, e.ToolEnded(1, "1.0", attempt, usage=Usage(5, 5)))
    assert decision == d.Illegal(f"attempt {attempt} of tool call 1.0 was never started")
    assert after is state


def test_a_host_that_does_not_ask_before_a_start_may_report_the_first_attempt(compiled: Compiled) -> None:
    _, decision = compiled.step(begun(compiled, ONE, 0), e.ToolEnded(0, "1.0"))
    assert isinstance(decision, d.Continue)


def test_what_waits_for_a_person_cannot_end() -> None:
    compiled = compile(Policy(name="p", tools=(ToolRule(glob="*", ask=True),)))
    state = begun(compiled, ONE, 0)
    assert compiled.step(state, e.ToolEnded(1, "1.0")) == (
        state,
        d.Illegal("attempt 1 of tool call 1.0 was never started"),
    )


@pytest.mark.parametrize("reply", [ONE, TWO], ids=["one tool", "two tools"])
def test_the_late_end_of_a_lost_attempt_is_charged_once(compiled: Compiled, reply: e.ModelReplied) -> None:
    state = begun(compiled, reply, 3)
    for attempt, tokens in ((1, 10), (1, 10), (2, 20), (2, 20), (1, 20)):
        state, decision = compiled.step(state, e.ToolEnded(1, "1.0", attempt, "failed", usage=Usage(10)))
        assert isinstance(decision, d.Wait)
        assert compiled.used(state).tokens == tokens
    state, decision = compiled.step(state, e.ToolEnded(1, "1.0", 3, usage=Usage(5)))
    assert isinstance(decision, d.Continue if reply is ONE else d.Wait)
    assert compiled.used(state).tokens == 25


def test_late_ends_are_charged_when_the_call_has_its_result(compiled: Compiled) -> None:
    state = begun(compiled, TWO, 2)
    for attempt, tokens in ((2, 5), (1, 10), (1, 10), (2, 10)):
        state, decision = compiled.step(state, e.ToolEnded(1, "1.0", attempt, usage=Usage(5)))
        assert isinstance(decision, d.Wait)
        assert compiled.used(state).tokens == tokens


def test_a_retry_leaves_nothing_to_be_charged_late() -> None:
    rule = ToolRule.model_validate({"glob": "search", "retry": {"times": 1, "least": 0, "most": 0}})
    compiled = compile(Policy(name="p", tools=(rule,)))
    state = begun(compiled, TWO, 1)
    state, decision = compiled.step(state, e.ToolEnded(1, "1.0", 1, "failed", usage=Usage(5)))
    assert isinstance(decision, d.Execute)
    state, decision = compiled.step(state, e.ToolEnded(1, "1.0", 1, "failed", usage=Usage(5)))
    assert isinstance(decision, d.Wait)
    assert compiled.used(state).tokens == 5
