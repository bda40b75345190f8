"""Usage that is told late, of an earlier attempt or the call before, is charged once and steers nothing."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import FailureRule, Fallback, Finalize, Limit, Policy, Price
from engine.core.state import EARLIER_ATTEMPTS, ClientInfo, State
from engine.core.step import Compiled, compile
from engine.verify.watch import Watch

ROUND = e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "search"),), usage=Usage(10, 1))
TOOL = (e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0"))


class Played:
    """A run on one of the two forms of ``step``, with the laws looking on."""

    def __init__(self, policy: Policy, *, reference: bool) -> None:
        self.compiled: Compiled = compile(policy, reference=reference)
        self.state: State = self.compiled.initial
        self.watch = Watch(policy)

    def see(self, *events: e.AnyEvent) -> d.AnyDecision:
        decision: d.AnyDecision = d.Continue()
        for event in events:
            self.state, decision = self.compiled.step(self.state, event)
            self.watch.see(event, decision)
            assert self.watch.broken == []
        return decision

    def tokens(self) -> int:
        return self.compiled.used(self.state).tokens


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def told(call: str, attempt: int, usage: Usage) -> list[e.AnyEvent]:
    """The ways in which a host may tell it."""
    return [
        e.UsageReported(1, call, attempt, usage),
        e.ModelReplied(1, call, attempt, text=True, usage=usage),
        e.ModelFailed(1, call, attempt, usage=usage),
    ]


@pytest.mark.parametrize("way", range(3))
def test_an_attempt_that_was_given_up_is_charged_when_it_is_known(reference: bool, way: int) -> None:
    run = Played(Policy(name="p"), reference=reference)
    asked = e.CallRequested(0, "1")
    run.see(e.RunStarted(0, "r"), asked, e.UsageReported(0, "1", 1, Usage(5)), asked)
    vars, call = run.state.vars, run.state.call
    for usage, tokens in ((Usage(9), 9), (Usage(9), 9), (Usage(7), 9), (Usage(9, 2), 11)):
        assert isinstance(run.see(told("1", 1, usage)[way]), d.Wait)
        assert run.tokens() == tokens
    assert run.state.vars == vars
    assert run.state.call is not None
    assert call is not None
    assert (run.state.call.id, run.state.call.attempt, run.state.call.charged) == ("1", 2, None)
    end = run.see(e.ModelReplied(1, "1", 2, text=True, usage=Usage(100)))
    assert isinstance(end, d.End)
    assert end.outcome.used.tokens == 111


@pytest.mark.parametrize("way", range(3))
def test_the_call_before_is_charged_too_and_an_older_one_is_not(reference: bool, way: int) -> None:
    run = Played(Policy(name="p"), reference=reference)
    run.see(e.RunStarted(0, "r"), e.CallRequested(0, "1"), ROUND, *TOOL, e.CallRequested(0, "2"))
    assert isinstance(run.see(told("1", 1, Usage(10, 4))[way]), d.Wait)
    assert run.tokens() == 14
    more = e.ModelReplied(1, "2", calls=(e.Proposed("2.0", "search"),))
    run.see(more, e.ToolRequested(1, "2.0"), e.ToolEnded(1, "2.0"), e.CallRequested(1, "3"))
    run.see(told("1", 1, Usage(50, 50))[way])
    assert run.tokens() == 14


def test_each_attempt_is_priced_as_the_model_that_made_it(reference: bool) -> None:
    prices = (Price(model="dear", input=10_000_000, output=0), Price(model="cheap", input=1_000_000, output=0))
    rule = FailureRule(reasons=("*",), then=(Fallback(clients=("b",)),))
    limit = Limit(resource="cost", max=1_000_000)
    run = Played(Policy(name="p", prices=prices, failures=(rule,), limits=(limit,)), reference=reference)
    clients = (ClientInfo("a", "dear"), ClientInfo("b", "cheap"))
    failed = e.ModelFailed(0, "1", reason="network")
    call = run.see(e.RunStarted(0, "r", clients=clients), e.CallRequested(0, "1", "a", "dear"), failed)
    assert isinstance(call, d.Call)
    run.see(e.UsageReported(1, "1", 1, Usage(100)), e.UsageReported(1, "2", 1, Usage(100)))
    assert run.compiled.used(run.state).cost == 1_100


def test_what_is_told_late_counts_when_the_next_call_is_admitted(reference: bool) -> None:
    run = Played(Policy(name="p", limits=(Limit(resource="tokens", max=100),)), reference=reference)
    asked = e.CallRequested(0, "1")
    run.see(e.RunStarted(0, "r"), asked, asked, e.UsageReported(0, "1", 1, Usage(100)))
    reply = e.ModelReplied(0, "1", 2, calls=ROUND.calls, usage=Usage(1))
    assert isinstance(run.see(reply), d.RunTools)
    end = run.see(*TOOL, e.CallRequested(0, "2"))
    assert isinstance(end, d.End)
    assert (end.outcome.reason, end.outcome.used.tokens) == ("tokens", 101)


def test_after_the_end_too(reference: bool) -> None:
    run = Played(Policy(name="p"), reference=reference)
    asked = e.CallRequested(0, "1")
    run.see(e.RunStarted(0, "r"), asked, asked, e.ModelReplied(0, "1", 2, text=True, usage=Usage(1)))
    run.see(e.UsageReported(1, "1", 1, Usage(5)))
    end = run.see(e.CallRequested(2, "2"))
    assert isinstance(end, d.End)
    assert end.outcome.used.tokens == 6


def test_no_more_is_remembered_than_was_promised(reference: bool) -> None:
    run = Played(Policy(name="p"), reference=reference)
    run.see(e.RunStarted(0, "r"), *[e.CallRequested(0, "1")] * (EARLIER_ATTEMPTS + 2))
    assert run.state.call is not None
    assert len(run.state.call.earlier) == EARLIER_ATTEMPTS
    run.see(e.UsageReported(1, "1", 1, Usage(5)))
    assert run.tokens() == 0
    run.see(e.UsageReported(1, "1", 2, Usage(5)))
    assert run.tokens() == 5


@pytest.mark.parametrize(("call", "attempt"), [("1", 0), ("1", -1), ("1", 3), ("7", 1)])
def test_nobody_asked_for_it(reference: bool, call: str, attempt: int) -> None:
    run = Played(Policy(name="p"), reference=reference)
    run.see(e.RunStarted(0, "r"), e.CallRequested(0, "1"), e.CallRequested(0, "1"))
    for event in told(call, attempt, Usage(5))[1:]:
        before = run.state
        assert isinstance(run.see(event), d.Illegal)
        assert run.state is before


def test_what_was_never_admitted_has_used_nothing(reference: bool) -> None:
    ending = Limit(resource="llm_calls", max=1, then=(Finalize(using="ending"),))
    run = Played(Policy(name="p", limits=(ending,)), reference=reference)
    assert isinstance(run.see(e.RunStarted(0, "r"), e.CallRequested(0, "1")), d.Resolve)
    run.see(e.UsageReported(0, "1", 0, Usage(5)))
    assert run.tokens() == 0
