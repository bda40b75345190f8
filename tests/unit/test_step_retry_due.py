"""A wait before a further attempt holds, whoever says that it is over."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import FailureRule, Policy, Retry
from engine.core.step import Compiled, compile

RULE = FailureRule(reasons=("*",), then=(Retry(times=1, least=1_000, most=1_000, jitter=False),))


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return compile(Policy(name="p", failures=(RULE,)), reference=request.param)


@pytest.mark.parametrize("early", [0, 500, 999])
def test_too_early_it_is_the_same_wait_again(compiled: Compiled, early: int) -> None:
    state = compiled.initial
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1", "main")):
        state, _ = compiled.step(state, event)
    state, first = compiled.step(state, e.ModelFailed(10, "1", reason="network"))
    assert isinstance(first, d.Retry)
    assert first.not_before == 1_010
    for _ in range(3):
        after, again = compiled.step(state, e.RetryDue(10 + early, "1"))
        assert after is state
        assert d.bare(again) == d.bare(first)
        assert again.because == "default: retry"
    state, call = compiled.step(state, e.RetryDue(1_010, "1"))
    assert isinstance(call, d.Call)
    assert call.attempt == 2


def test_a_host_that_asks_again_by_itself_does_not_wait(compiled: Compiled) -> None:
    """It may have crashed, or retry by its own rules."""
    state = compiled.initial
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1"), e.ModelFailed(10, "1", reason="network")):
        state, _ = compiled.step(state, event)
    _, call = compiled.step(state, e.CallRequested(11, "1"))
    assert isinstance(call, d.Call)
    assert call.attempt == 2
