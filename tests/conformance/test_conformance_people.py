"""Cases about what people do: tools that the user executes, changes of agent, budgets that a person raises."""

from __future__ import annotations

from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_steps import Steps
from conformance_world import policy_of

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Ask, Limit, Policy, Price
from engine.core.step import suspended

# Tools that the host's user executes.


def asked(steps: Steps, *calls: tuple[str, str]) -> d.AnyDecision:
    """The model asks for these calls, each of a kind."""
    proposed = tuple(
        e.Proposed(f"1.{i}", name, kind=kind, registered=name != "nobody")  # type: ignore[arg-type]
        for i, (name, kind) in enumerate(calls)
    )
    return steps.send(e.ModelReplied(steps.now, str(steps._calls), calls=proposed, usage=Usage(1, 1)))


@differs(
    "final-external-tool-does-not-finalize", "final-mixed-deferred-does-not-finalize", "run-deferred-mixed-at-limit"
)
def test_the_run_waits_for_its_user_and_finalizes_with_the_result(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    mixed = "mixed" in case["id"]
    decided = asked(steps, ("external_tool", "external"), *((("auto_tool", "function"),) if mixed else ()))
    assert isinstance(decided, d.RunTools)
    if mixed:
        steps.send(e.ToolRequested(0, "1.1"))
        assert isinstance(steps.send(e.ToolEnded(0, "1.1")), d.Suspend)
    # As in the original nothing else is executed and the round is counted; the original ends here.
    assert suspended(steps.state)
    assert steps.used.tool_iterations == case["expect"]["counters"]["tool_iterations"]
    assert isinstance(steps.send(e.ToolEnded(9, "1.0", 0)), d.Continue)
    following = steps.call()
    assert isinstance(following, d.Call)
    assert (following.final, following.instruction) == (True, "TOOL-TEXT")


@reproduces("defer-classify-7")
def test_an_unknown_tool_beside_one_of_the_users(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    steps.call()
    decided = asked(steps, ("nobody", "function"), ("tool", "external"))
    assert isinstance(decided, d.RunTools)
    seen = {
        "deferred": any(isinstance(v, d.Ask) and v.external for v in decided.verdicts),
        "executable": any(isinstance(v, d.Execute) for v in decided.verdicts),
        "unknown": any(isinstance(v, d.Reply) and v.why == "unknown_tool" for v in decided.verdicts),
    }
    assert seen == case["expect"]


@reproduces("run-deferred-over-limit")
def test_the_limit_comes_before_the_user(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    steps.round()
    steps.call()
    decided = asked(steps, ("ext", "external"))
    assert isinstance(decided, d.End)
    assert (decided.outcome.status, decided.outcome.reason) == ("incomplete", "tool_iterations")
    assert [reply.why for reply in decided.close] == ["stopped"]
    assert case["expect"]["tools_executed"] == ["a"]
    assert steps.used.tool_calls == 1


# Changes of agent.


@differs("run-transfer-ok-at-limit", "run-transfer-fail-at-limit")
def test_a_change_of_agent_is_no_round(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    decided = asked(steps, ("transfer", "handoff"))
    assert isinstance(decided, d.RunTools)
    assert (decided.complete, [v.why for v in decided.verdicts if isinstance(v, d.Reply)]) == (True, ["handoff"])
    assert case["expect"]["counters"]["tool_iterations"] == 1
    assert (steps.used.tool_iterations, steps.used.tool_calls) == (0, 0)
    following = steps.call()
    assert isinstance(following, d.Call)
    assert not following.final


@reproduces("run-transfer-unknown-target-continues")
def test_a_change_to_an_agent_that_is_not_there_is_answered(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    calls = [steps.call()]
    decided = asked(steps, ("nobody", "handoff"))
    assert isinstance(decided, d.RunTools)
    assert [v.why for v in decided.verdicts if isinstance(v, d.Reply)] == ["unknown_tool"]
    calls.append(steps.call())
    assert len(calls) == len(case["expect"]["calls"])
    assert not any(isinstance(call, d.Call) and call.final for call in calls)
    assert isinstance(steps.replied(), d.End)
    assert (case["expect"]["outcome"]["kind"], steps.state.book.outcome.status) == ("final", "completed")  # type: ignore[union-attr]


# Budgets that a person raises.

PRICES = (Price(model="m", input=1_000_000, output=3_000_000),)


def raised(config: dict[str, Any], times: int = 1) -> Policy:
    """The budget as limits that ask."""
    limits = []
    if config.get("max_tokens"):
        ask = Ask(up_to=config.get("approval_extra_tokens"), times=times)
        limits.append(Limit(resource="tokens", max=config["max_tokens"], then=(ask,)))
    if config.get("max_cost_usd"):
        limits.append(Limit(resource="cost", max=int(config["max_cost_usd"] * 1_000_000), then=(Ask(times=times),)))
    return Policy(name="case", limits=tuple(limits), prices=PRICES)


def spend(steps: Steps, tokens: int) -> d.AnyDecision:
    """The call in hand uses so many tokens; what is decided about the next one."""
    steps.replied("tool", usage=Usage(tokens, 0))
    steps.ended()
    return steps.call()


@differs("bud.watermark_advance", "bud.error_carries_watermark")
def test_a_grant_counts_from_the_limit_not_from_what_was_used(case: Case) -> None:
    steps = Steps(raised(case["config"], times=2))
    steps.call()
    first = spend(steps, 110)
    assert isinstance(first, d.Suspend)
    assert (first.requests[0].used, first.requests[0].maximum, first.requests[0].up_to) == (110, 100, 100)
    assert isinstance(steps.send(e.ExtensionAnswered(0, "tokens")), d.Call)
    second = spend(steps, 100)
    assert isinstance(second, d.Suspend)
    # The original allows 110 + 100; here the limit of 100 has become 200.
    assert (second.requests[0].used, second.requests[0].maximum) == (210, 200)
    assert 210 in (
        case["expect"].get("next_limit_after_approval"),
        case["expect"].get("second_breach", {}).get("total"),
    )


@differs("bud.first_window_uses_extra")
def test_the_first_window_is_the_limit(case: Case) -> None:
    steps = Steps(raised(case["config"]))
    steps.call()
    assert isinstance(spend(steps, 100), d.Call)
    assert isinstance(spend(steps, 900), d.Suspend)
    # In the original it is what a person grants, 100 of 1000.
    assert case["expect"]["errors"][0] == "breach"


@reproduces("bud.check_is_readonly")
def test_looking_changes_nothing(case: Case) -> None:
    steps = Steps(raised(case["config"]))
    seen = ["breach" if isinstance(steps.look(steps.next_call()), d.Suspend) else None]
    steps.call()
    steps.replied("tool", usage=Usage(60, 50))
    steps.ended()
    for _ in range(2):
        seen.append("breach" if isinstance(steps.look(steps.next_call()), d.Suspend) else None)
    assert isinstance(steps.call(), d.Suspend)
    seen.append("breach" if isinstance(steps.send(e.ExtensionAnswered(0, "tokens")), d.Suspend) else None)
    assert seen == case["expect"]["errors"]


@differs("lb.approval_timed_out", "rb.denied", "derived.budget.approval_unavailable")
def test_an_answer_that_has_arrived_needs_nobodys_permission(case: Case) -> None:
    answered = Steps(raised(case["config"]))
    answered.call()
    end = answered.replied(usage=Usage(case["script"][0]["usage"]["total"], 0))
    assert isinstance(end, d.End)
    assert end.outcome.status == "completed"
    # Where a further call is needed, no grant means what it means in the original.
    said: dict[str, Any] = {"timed_out": "expired", "rejected": "refused"}
    answer = said.get(case["script"][-1].get("status", ""), "nobody")
    steps = Steps(raised(case["config"]))
    steps.call()
    assert isinstance(spend(steps, 110), d.Suspend)
    end = steps.send(e.ExtensionAnswered(0, "tokens", answer))
    assert isinstance(end, d.End)
    assert (end.outcome.status, end.outcome.reason) == ("incomplete", "tokens")
    assert "error" in case["expect"]


@reproduces("tb.wait_approved")
@pytest.mark.parametrize("further", [False, True])
def test_a_run_goes_on_with_what_was_granted(case: Case, further: bool) -> None:
    steps = Steps(raised(case["config"]))
    steps.call()
    if further:
        assert isinstance(spend(steps, case["script"][0]["usage"]["total"]), d.Suspend)
        assert isinstance(steps.send(e.ExtensionAnswered(0, "tokens")), d.Call)
    end = steps.replied(usage=Usage(case["script"][0]["usage"]["total"], 0))
    assert isinstance(end, d.End)
    assert ("ok" if end.outcome.status == "completed" else "error") == case["expect"]["run"]


@reproduces("pc.budget.wait_with_handler_ok")
def test_a_budget_that_asks_may_be_written(case: Case) -> None:
    assert case["expect"] == {"error": None}
    (limit,) = raised(case["config"]).limits
    assert [step.do for step in limit.then] == ["ask"]


@reproduces("pc.budget.extra_defaults_to_max")
def test_what_is_asked_for_is_as_much_as_the_limit(case: Case) -> None:
    policy = raised(case["config"])
    seen = {plan.resource: plan.up_to() for plan in Steps(policy).compiled.core.plans}
    expect = case["expect"]
    assert seen == {
        "tokens": expect["approval_extra_tokens"],
        "cost": int(expect["approval_extra_cost_usd"] * 1_000_000),
    }


@differs("derived.budget.restate_ignores_max_approvals")
def test_a_person_is_asked_as_often_as_the_policy_says(case: Case) -> None:
    times = case["config"]["max_approvals"]
    steps = Steps(raised({"max_tokens": 100, **case["config"]}, times=times))
    steps.call()
    assert isinstance(spend(steps, 100), d.Suspend)
    steps.send(e.ExtensionAnswered(0, "tokens"))
    end = spend(steps, 100)
    assert isinstance(end, d.End)
    assert case["expect"] == {"approval_asked_again": True}
