"""A breaker that ends a run, or makes its next call final, acts wherever it first skips: at a grant and a start too."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Breaker, Detector, Policy, ToolRule
from engine.core.step import compile
from engine.verify.watch import Watch

TRIPS = (Detector(kind="failures", n=1),)


def play(policy: Policy, *events: e.AnyEvent, reference: bool) -> list[d.AnyDecision]:
    compiled, watch = compile(policy, reference=reference), Watch(policy)
    state, decisions = compiled.initial, []
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1"), *events):
        state, decision = compiled.step(state, event)
        assert not isinstance(decision, d.Illegal), decision.problem
        watch.see(event, decision)
        decisions.append(decision)
    assert watch.broken == []
    return decisions


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def reply(*names: str) -> e.ModelReplied:
    return e.ModelReplied(0, "1", calls=tuple(e.Proposed(f"1.{i}", name) for i, name in enumerate(names)))


def breaker(when_open: Any, glob: str = "*", apply: Any = "now") -> Breaker:
    return Breaker(glob=glob, trips=TRIPS, apply=apply, when_open=when_open)


FAILED = (e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0", status="failed"))


def ends(decision: d.AnyDecision) -> None:
    assert isinstance(decision, d.End)
    assert (decision.outcome.status, decision.outcome.reason) == ("failed", "breaker")
    assert decision.because == 'breaker "*"'


def test_stop_at_the_start_of_the_last_call(reference: bool) -> None:
    decisions = play(
        Policy(name="p", breakers=(breaker("stop"),)),
        reply("t", "t"),
        *FAILED,
        e.ToolRequested(1, "1.1"),
        reference=reference,
    )
    ends(decisions[-1])
    assert isinstance(decisions[-1], d.End)
    assert [(r.id, r.why) for r in decisions[-1].close] == [("1.1", "breaker")]


def test_stop_waits_for_the_end_of_the_round(reference: bool) -> None:
    policy = Policy(name="p", breakers=(breaker("stop"),))
    both = (e.ToolRequested(0, "1.0"), e.ToolRequested(0, "1.1"), e.ToolEnded(0, "1.0", status="failed"))
    later = (e.ToolRequested(1, "1.2"), e.ToolEnded(1, "1.1"))
    decisions = play(policy, reply("t", "t", "t"), *both, *later, reference=reference)
    assert isinstance(decisions[-2], d.Reply)
    ends(decisions[-1])


def test_finalize_at_a_start(reference: bool) -> None:
    policy = Policy(name="p", breakers=(breaker("finalize"),))
    asked = (e.ToolRequested(1, "1.1"), e.CallRequested(1, "2"))
    decisions = play(policy, reply("t", "t"), *FAILED, *asked, reference=reference)
    assert isinstance(decisions[-2], d.Reply)
    call = decisions[-1]
    assert isinstance(call, d.Call)
    assert (call.final, call.why) == (True, "breaker")


@pytest.mark.parametrize("when_open", ["stop", "finalize", "skip"])
def test_at_a_grant(reference: bool, when_open: str) -> None:
    """The breaker opens while a person is asked about another call of the round."""
    policy = Policy(name="p", breakers=(breaker(when_open),), tools=(ToolRule(glob="t", ask=True),))
    granted = (e.ApprovalGiven(0, "1.0"), *FAILED, e.ApprovalGiven(1, "1.1"))
    decisions = play(policy, reply("t", "t"), *granted, e.CallRequested(2, "2"), reference=reference)
    at_grant, after = decisions[-2:]
    if when_open == "stop":
        ends(at_grant)
        assert isinstance(after, d.End)
        return
    assert isinstance(at_grant, d.RunTools)
    assert isinstance(at_grant.verdicts[0], d.Reply)
    assert at_grant.verdicts[0].why == "breaker"
    assert isinstance(after, d.Call)
    assert after.final is (when_open == "finalize")


def test_an_open_breaker_of_another_kind_ends_nothing(reference: bool) -> None:
    """Only the breaker that skips decides: here one that skips, beside one that would stop and is closed."""
    stops = Breaker(glob="*", trips=(Detector(kind="failures", n=9),), apply="now", when_open="stop")
    policy = Policy(name="p", breakers=(stops, breaker("skip")))
    decisions = play(
        policy, reply("t", "t"), *FAILED, e.ToolRequested(1, "1.1"), e.CallRequested(2, "2"), reference=reference
    )
    assert isinstance(decisions[-1], d.Call)
    assert not decisions[-1].final
