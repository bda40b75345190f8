"""A host that answers tool calls by itself names them with its next call: they have their results then."""

from __future__ import annotations

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Finalize, Limit, Policy
from engine.core.state import State
from engine.core.step import Compiled, compile

ROUND = e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "search"), e.Proposed("1.1", "search")))


def after_a_round(policy: Policy | None = None) -> tuple[Compiled, State]:
    compiled = compile(policy or Policy(name="p"))
    state = compiled.initial
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1"), ROUND, e.ToolRequested(0, "1.0")):
        state, decision = compiled.step(state, event)
        assert not isinstance(decision, d.Illegal)
    return compiled, state


def test_the_next_call_completes_the_round_with_what_the_host_has_answered() -> None:
    compiled, state = after_a_round()
    state, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0", "1.1")))
    assert isinstance(decision, d.Call)
    assert (decision.call, state.round) == ("2", ())


def test_a_call_left_open_is_named_and_nothing_moves() -> None:
    compiled, state = after_a_round()
    after, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0",)))
    assert decision == d.Illegal("call 2 requested while tool call 1.1 has no result")
    assert after is state


def test_what_has_ended_already_may_be_named_again() -> None:
    compiled, state = after_a_round()
    state, _ = compiled.step(state, e.ToolEnded(0, "1.0"))
    state, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0", "1.1")))
    assert isinstance(decision, d.Call)


def test_the_ladder_of_what_did_not_fit_moves_before_the_call_is_looked_at() -> None:
    one = Limit(resource="tool_calls", max=1)
    compiled, state = after_a_round(Policy(name="p", limits=(one,)))
    _, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0",)))
    assert isinstance(decision, d.End)
    assert decision.outcome.reason == "tool_calls"

    finalizing = one.model_copy(update={"then": (Finalize(),)})
    compiled, state = after_a_round(Policy(name="p", limits=(finalizing,)))
    _, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0",)))
    assert isinstance(decision, d.Call)
    assert (decision.final, decision.why) == (True, "tool_calls")


def test_the_call_in_hand_cannot_be_asked_for_while_its_tools_run() -> None:
    compiled, state = after_a_round()
    after, decision = compiled.step(state, e.CallRequested(0, "1", answered=("1.0", "1.1")))
    assert isinstance(decision, d.Illegal)
    assert after is state
