"""Cases about counters and about the state of a finalization: the bare ``step``."""

from __future__ import annotations

from conformance_cases import Case, differs, reproduces
from conformance_steps import Steps, restored
from conformance_world import limit, policy_of

from engine.core import decisions as d
from engine.core.policy import Policy
from engine.core.state import Used


@differs("inv-llm-nolimit")
def test_a_call_without_a_limit_is_allowed_and_counted(case: Case) -> None:
    steps = Steps(Policy(name="no limit"))
    assert isinstance(steps.call(), d.Call)
    assert case["expect"]["results"] == ["ok"]
    assert steps.used.llm_calls == 1 != case["expect"]["counters"]["llm_calls"]


@differs("inv-tool-nolimit")
def test_a_round_without_a_limit_is_admitted_and_counted(case: Case) -> None:
    steps = Steps(Policy(name="no limit"))
    steps.call()
    assert isinstance(steps.round(), d.RunTools)
    assert case["expect"]["results"] == ["not_exceeded"]
    assert steps.used.tool_iterations == 1 != case["expect"]["counters"]["tool_iterations"]


@differs("inv-llm-overflow")
def test_a_refused_call_is_not_counted(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    results, counters = [], []
    for _ in case["script"]:
        decision = steps.call()
        results.append("ok" if isinstance(decision, d.Call) else "stop_error")
        counters.append(steps.used.llm_calls)
        if isinstance(decision, d.Call):
            steps.round()
    assert results == case["expect"]["results"]
    assert counters == [1, 2, 2]
    assert case["expect"]["counters_after_each"] == [1, 2, 3]
    assert isinstance(decision, d.End)
    assert decision.outcome.limit is not None
    assert (decision.outcome.limit.resource, decision.outcome.limit.maximum) == ("llm_calls", 2)


@differs("inv-tool-overflow")
def test_a_refused_round_is_not_counted(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    results, counters = [], []
    for _ in case["script"]:
        steps.call()
        results.append("not_exceeded" if isinstance(steps.round(), d.RunTools) else "exceeded")
        counters.append(steps.used.tool_iterations)
    assert results == case["expect"]["results"]
    assert counters == [1, 2, 2]
    assert case["expect"]["counters_after_each"] == [1, 2, 3]


@reproduces("inv-tool-clone-view")
def test_another_run_begins_at_zero_and_the_same_run_keeps_its_count(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    steps.round()
    child = Steps(policy_of(case["config"]), parent="run")
    seen = {
        "counters": {"tool_iterations": steps.used.tool_iterations},
        "view": {"tool_iterations": steps.compiled.used(restored(steps)).tool_iterations},
        "clone": {"tool_iterations": child.used.tool_iterations},
    }
    assert seen == case["expect"]


@differs("inv-syncview")
def test_a_state_carries_limits_counters_and_end_to_another_process(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    steps.round()
    steps.call()
    steps.replied(text=True)
    there = restored(steps)
    assert there == steps.state
    assert steps.compiled.used(there) == steps.used == Used(2, 2, 1, 1, 0, 2, 2)
    maxima = {hit.resource: hit.maximum for hit in steps.compiled.standings(there, 0)}
    source = case["expect"]["source"]
    assert maxima == {"llm_calls": source["max_llm_calls"], "tool_iterations": source["max_tool_iterations"]}
    assert isinstance(steps.compiled.step(there, steps.next_call())[1], d.End) == source["end"]


@reproduces("fsm-llm-custom")
def test_the_last_call_is_final_and_only_that_one(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    seen: list[object] = []
    for op in (item["op"] for item in case["script"]):
        if op == "preview":
            seen.append(_instruction(steps.look(steps.next_call())))
        elif op == "record_llm_call":
            decision = steps.call()
            # Was it counted as the last one?
            seen.append(steps.used.llm_calls == case["config"]["max_llm_calls"])
            if not seen[-1]:
                steps.round()
        elif op == "is_active":
            seen.append(_is_final(decision))
        elif op == "activate_for_llm":
            assert isinstance(decision, d.Call)
            seen.append({"active": decision.final, "instruction": decision.instruction})
        else:
            assert op == "finish"
            decision = steps.replied(text=True)
            seen.append(None)
    assert seen == case["expect"]["results"]
    assert isinstance(steps.call(), d.End)


@reproduces("fsm-llm-beats-pending-tool")
def test_the_call_limit_goes_before_a_pending_tool_limit(case: Case) -> None:
    config = case["config"]
    calls = limit("llm_calls", config["max_llm_calls"], config["finalize_on_llm_limit"])
    # The round was had before this run's only call: in an earlier run of the thread.
    rounds = limit("tool_iterations", config["max_tool_iterations"], config["finalize_on_tool_limit"], scope="thread")
    steps = Steps(Policy(name="case", limits=(rounds, calls)), thread_used=Used(tool_iterations=1))
    preview = _instruction(steps.look(steps.next_call()))
    decision = steps.call()
    assert isinstance(decision, d.Call)
    assert [True, None, preview, steps.used.llm_calls == 1, _activated(decision)] == case["expect"]["results"]
    assert decision.why == "llm_calls"


@reproduces("fsm-preview-pure")
def test_looking_ahead_changes_nothing(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    steps.round()
    before = steps.state
    preview = steps.look(steps.next_call())
    reached = steps.used.tool_iterations == case["config"]["max_tool_iterations"]
    results = [reached, None, _instruction(preview), steps.state is not before, _activated(steps.call())]
    assert results == case["expect"]["results"]


def _is_final(decision: d.AnyDecision) -> bool:
    return isinstance(decision, d.Call) and decision.final


def _instruction(decision: d.AnyDecision) -> str | None:
    """The instruction of a call that would be final."""
    assert isinstance(decision, d.Call)
    return decision.instruction if decision.final else None


def _activated(decision: d.AnyDecision) -> dict[str, object]:
    assert isinstance(decision, d.Call)
    return {"active": decision.final, "instruction": decision.instruction}
