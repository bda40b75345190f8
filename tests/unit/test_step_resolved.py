"""What the host's functions answer: only what was asked for counts, and only for the limit it was asked for."""

import engine
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from policy_lang import loads


def played(policy, *events):
    """The decision on each event, and the states before and after the last one."""
    compiled = engine.compile(loads('policy "p" lang 1\n' + policy))
    before = state = compiled.initial
    decisions = []
    for event in (e.RunStarted(0, "r"), *events):
        before = state
        state, decision = compiled.step(state, event)
        decisions.append(decision)
    return decisions, before, state


ONE_CALL = """
limits {
  llm_calls 1 then finalize using brief
}
"""


def test_an_answer_of_another_function_is_illegal():
    decisions, before, after = played(ONE_CALL, e.CallRequested(1, "1"), e.Resolved(2, "verbose", ref="x"))
    assert isinstance(decisions[-1], d.Illegal)
    assert decisions[-1].problem == "verbose resolved while brief was asked for"
    assert before == after


def test_the_refusal_of_the_reactive_mode_has_its_function_too():
    policy = """
limits {
  tool_iterations 0 then finalize using brief
}
finalization {
  mode reactive using refusal
}
"""
    asks = e.ModelReplied(2, "1", calls=(e.Proposed("1.0", "search"),), usage=Usage(1, 1))
    decisions, *_ = played(policy, e.CallRequested(1, "1"), asks, e.Resolved(3, "brief"), e.Resolved(4, "refusal"))
    asked, other, answered = decisions[-3:]
    assert isinstance(asked, d.Resolve)
    assert asked.name == "refusal"
    assert isinstance(other, d.Illegal)
    assert isinstance(answered, d.RunTools)


LATE = """
limits {
  llm_calls 1 then finalize using brief
  wall 10s reserve 4s then finalize "No time is left."
}
finalization {
  prefer wall over llm_calls
}
"""


def test_the_text_for_one_limit_is_not_used_for_another_that_comes_first_by_now():
    in_time, *_ = played(LATE, e.CallRequested(1, "1"), e.Resolved(5_000, "brief", ref="text"))
    assert isinstance(in_time[-1], d.Call)
    assert (in_time[-1].why, in_time[-1].instruction_ref) == ("llm_calls", "text")
    late, *_ = played(LATE, e.CallRequested(1, "1"), e.Resolved(6_000, "brief", ref="text"))
    assert isinstance(late[-1], d.Call)
    assert (late[-1].why, late[-1].instruction_ref, late[-1].instruction) == ("wall", "", "No time is left.")
