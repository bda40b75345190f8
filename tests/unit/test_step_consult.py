"""A consultant chooses the step of a ladder that is taken, and what it steps over has not happened."""

from __future__ import annotations

import pytest

from engine.core.decisions import Call, Continue, End, Resolve
from engine.core.events import CallRequested, ModelFailed, ModelReplied, Proposed, Resolved, RunStarted
from engine.core.messages import Usage
from engine.core.policy import Consult, Extend, FailureRule, Finalize, Limit, Policy, Stop
from engine.core.step import compile


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(("choice", "maximum"), [("extend", 100), ("stop", 60), ("nonsense", 100)])
def test_an_extension_that_was_stepped_over_grants_nothing(choice: str, maximum: int, reference: bool) -> None:
    limit = Limit(resource="tokens", max=60, then=(Consult(name="ask"), Extend(by=40)))
    compiled = compile(Policy(name="p", limits=(limit,)), reference=reference)
    state, _ = compiled.step(compiled.initial, RunStarted(0, "r"))
    state, _ = compiled.step(state, CallRequested(1, "1", "m"))
    unknown = (Proposed("1.0", "nothing", registered=False),)
    state, _ = compiled.step(state, ModelReplied(2, "1", 1, calls=unknown, usage=Usage(input=60)))
    state, decision = compiled.step(state, CallRequested(3, "2", "m"))
    for _ in range(2):
        if isinstance(decision, Resolve):
            state, decision = compiled.step(state, Resolved(4, "ask", step=choice))
    assert compiled.standings(state, 4)[0].maximum == maximum
    assert isinstance(decision, Call if maximum == 100 else End)


def test_a_ladder_that_finalizes_in_two_places() -> None:
    ladder = (Consult(name="ask"), Finalize(using="write"), Finalize(text="Say what you have."))
    policy = Policy(name="p", failures=(FailureRule(reasons=("*",), then=ladder),))
    for reference in (True, False):
        compiled = compile(policy, reference=reference)
        state, _ = compiled.step(compiled.initial, RunStarted(0, "r"))
        state, _ = compiled.step(state, CallRequested(1, "1", "m"))
        state, decision = compiled.step(state, ModelFailed(2, "1", 1, "timeout"))
        assert isinstance(decision, Resolve)
        state, decision = compiled.step(state, Resolved(3, "ask", step="finalize"))
        assert isinstance(decision, Continue)


@pytest.mark.parametrize(("choice", "finalized"), [("finalize", True), ("stop", False)])
@pytest.mark.parametrize("reference", [True, False])
def test_the_stop_behind_a_final_call_can_be_chosen(choice: str, finalized: bool, reference: bool) -> None:
    limit = Limit(resource="llm_calls", max=2, then=(Consult(name="ask"), Finalize()))
    compiled = compile(Policy(name="p", limits=(limit,)), reference=reference)
    state, _ = compiled.step(compiled.initial, RunStarted(0, "r"))
    state, _ = compiled.step(state, CallRequested(1, "1", "m"))
    state, _ = compiled.step(state, ModelReplied(2, "1", 1, calls=(Proposed("1.0", "nothing", registered=False),)))
    state, decision = compiled.step(state, CallRequested(3, "2", "m"))
    assert isinstance(decision, Resolve)
    _, decision = compiled.step(state, Resolved(4, "ask", step=choice))
    assert isinstance(decision, Call)
    assert decision.final is finalized


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize("choice", ["extend", "finalize", "stop", ""])
def test_steps_behind_a_stop_can_be_chosen(choice: str, reference: bool) -> None:
    ladder = (Consult(name="ask"), Stop(), Extend(by=40), Finalize())
    limit = Limit(resource="tokens", max=60, reserve=10, then=ladder)
    compiled = compile(Policy(name="p", limits=(limit,)), reference=reference)
    state, _ = compiled.step(compiled.initial, RunStarted(0, "r"))
    state, _ = compiled.step(state, CallRequested(1, "1", "m"))
    unknown = (Proposed("1.0", "nothing", registered=False),)
    state, _ = compiled.step(state, ModelReplied(2, "1", 1, calls=unknown, usage=Usage(input=55)))
    state, decision = compiled.step(state, CallRequested(3, "2", "m"))
    assert isinstance(decision, Resolve)
    state, decision = compiled.step(state, Resolved(4, "ask", step=choice))
    assert isinstance(decision, Call)
    assert decision.final is (choice == "finalize")
    assert compiled.standings(state, 4)[0].maximum == (100 if choice == "extend" else 60)
    # Behind a `stop` that was chosen no final call is to come, so nothing is kept back for it.
    assert decision.max_output == {"extend": 35, "finalize": 5, "stop": 5, "": 5}[choice]
