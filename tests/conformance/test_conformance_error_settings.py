"""Cases about usage and budgets, and about what a configuration may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import budget_of, failures_of, policy_of_errors, script
from conformance_steps import Failing, Steps, restored
from conformance_world import limit

import policy_lang
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Breaker, Extend, Limit, Policy, Retry, ToolRule

# Usage and budgets.


def charged(steps: Steps, event: dict[str, Any]) -> d.AnyDecision:
    """A call that costs so much and asks for a tool; the decision on the next call."""
    steps.call()
    steps.replied("tool", usage=Usage(event["prompt"], event["completion"]))
    steps.ended()
    return steps.look(steps.next_call())


class Priced(Steps):
    def next_call(self) -> e.CallRequested:
        return e.CallRequested(self.now, str(self._calls + 1), client="primary", model="scripted")


@reproduces("bud.under_limit", "bud.cost_exceeded", "derived.budget.both_really_breach")
def test_a_budget(case: Case) -> None:
    steps = Priced(Policy.model_validate({"name": "case", **budget_of(case["config"])}))
    (event,) = script(case)
    following = charged(steps, event)
    expect = case["expect"]
    if "breach" not in expect:
        assert isinstance(following, d.Call)
        assert steps.used.tokens == expect["totals"]["tokens"]
        return
    assert isinstance(following, d.End)
    hit = following.outcome.limit
    assert hit is not None
    assert hit.resource == expect["breach"]["kind"]
    if hit.resource == "cost":
        assert hit.used == expect["breach"]["total_usd"] * 1_000_000


@reproduces("bud.integer_cost_no_drift")
def test_costs_add_up_exactly(case: Case) -> None:
    steps = Priced(Policy.model_validate({"name": "case", **budget_of(case["config"])}))
    (event,) = case["script"]
    for _ in range(event["times"]):
        charged(steps, event["of"])
    assert steps.used.cost == round(case["expect"]["totals"]["cost"] * 1_000_000)


@differs("bud.nil_config")
def test_what_was_used_is_known_without_a_budget(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    charged(steps, case["script"][0])
    assert steps.used.tokens == 150
    assert case["expect"]["totals"]["tokens"] == 0


@reproduces("ut.usage.merge_sum")
def test_usage_adds_up(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    (event,) = script(case)
    charged(steps, event["acc"])
    charged(steps, event["add"])
    used = steps.used
    seen = {"prompt": used.input_tokens, "completion": used.output_tokens, "total": used.tokens}
    assert seen == case["expect"]


@differs("lb.stop_cost", "lb.cost_only_limit", "tb.stop_cost", "rb.stop", "derived.budget.final_answer_lost")
def test_an_answer_that_has_arrived_is_an_answer(case: Case) -> None:
    steps = Priced(Policy.model_validate({"name": "case", **budget_of(case["config"])}))
    steps.call()
    (event,) = script(case)
    usage = event["usage"]
    given = Usage(usage.get("prompt", usage["total"]), usage.get("completion", 0))
    ended = steps.replied(text=True, usage=given)
    assert isinstance(ended, d.End)
    assert ended.outcome.status == "completed"
    assert "budget_exceeded" in (case["expect"].get("error"), case["expect"].get("finish_reason"))


@reproduces("lb.no_budget")
def test_without_a_budget_there_is_no_end_to_it(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    steps.call()
    ended = steps.replied(text=True, usage=Usage(case["script"][0]["usage"]["total"], 0))
    assert isinstance(ended, d.End)
    assert (ended.outcome.status == "completed") == (case["expect"]["run"] == "ok")


@reproduces("tw.can.resumes_telemetry")
def test_counters_go_on_where_another_process_left_them(case: Case) -> None:
    before, expect = case["config"]["restored"], case["expect"]["telemetry"]
    steps = Steps(Policy(name="case"))
    for _ in range(before["llm_calls"]):
        steps.call()
        steps.replied("a", "b", usage=Usage(before["tokens"] // before["llm_calls"], 0))
        for position in range(before["tools_total"] // before["llm_calls"]):
            steps.ended(position)
    steps.state = restored(steps)
    steps.call()
    steps.replied(text=True, usage=Usage(case["script"][0]["usage"]["total"], 0))
    used = steps.used
    assert (used.llm_calls, used.tokens, used.tool_calls) == (
        expect["llm_calls"],
        expect["tokens"],
        expect["tools_total"],
    )


# What may be written.


@reproduces("pc.budget.tokens_ok", "pc.budget.cost_with_rates_ok")
def test_a_budget_that_may_be_written(case: Case) -> None:
    policy = Policy.model_validate({"name": "case", **budget_of(case["config"])})
    assert len(policy.limits) == 1
    assert case["expect"]["error"] is None


@reproduces("pc.budget.cost_without_rates")
def test_a_limit_on_cost_needs_prices(case: Case) -> None:
    with pytest.raises(ValueError, match="price table"):
        Policy.model_validate({"name": "case", **budget_of(case["config"])})
    assert case["expect"]["error"]


@reproduces("pc.budget.unknown_action")
def test_a_step_nobody_knows_is_refused(case: Case) -> None:
    step = {"do": case["config"]["on_exceeded"]}
    with pytest.raises(ValueError, match="explode"):
        Limit.model_validate({"resource": "tokens", "max": case["config"]["max_tokens"], "then": [step]})
    assert case["expect"]["error"]


@reproduces("pc.budget.negative_extra")
def test_less_than_nothing_cannot_be_granted(case: Case) -> None:
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Extend(by=case["config"]["approval_extra_tokens"])
    assert case["expect"]["error"]


@reproduces("pc.budget.stop_rejects_extra")
def test_nothing_is_granted_behind_a_stop(case: Case, tmp_path: Path) -> None:
    config = case["config"]
    path = tmp_path / "case.policy"
    ladder = f"then stop then extend {config['approval_extra_tokens']} once"
    path.write_text(f'policy "case" lang 1\nlimits {{\n  tokens {config["max_tokens"]} {ladder}\n}}\n')
    _, findings = policy_lang.check(path)
    assert [finding.code for finding in findings] == ["P313"]
    assert case["expect"]["error"]


@reproduces("pc.budget.default_action")
def test_a_limit_without_a_ladder_stops(case: Case) -> None:
    steps = Steps(Policy(name="case", limits=(limit("tokens", case["config"]["max_tokens"]),)))
    following = charged(steps, {"prompt": 500, "completion": 0})
    assert isinstance(following, d.End) == (case["expect"]["on_exceeded"] == "stop_run")


@differs("pc.budget.no_limits")
def test_a_policy_without_limits_is_one(case: Case) -> None:
    assert Policy(name="case").limits == ()
    assert case["expect"]["error"]


@reproduces("pe.breaker_stored")
def test_a_breaker_keeps_its_numbers(case: Case) -> None:
    policy = policy_of_errors(case["config"])
    (breaker,) = Policy.model_validate_json(policy.model_dump_json()).breakers
    numbers = {trip.kind: trip.n for trip in breaker.trips}
    config = case["config"]
    assert numbers == {"same_args": config["max_consecutive_same_args"], "alternating": config["pattern_window_size"]}
    assert breaker.reset == config["reset_after_s"] * 1000
    assert case["expect"]["stored"]


@reproduces("pc.budget.in_fingerprint")
def test_a_budget_is_part_of_a_policys_identity(case: Case) -> None:
    prints = {Policy(name="case", limits=(limit("tokens", most),)).fingerprint() for most in (100, 200)}
    assert (len(prints) == 2) == case["expect"]["fingerprints_differ"]


@differs("tf.changes.agent", "tf.changes.observability", "tf.changes.hooks")
def test_what_decides_nothing_is_no_part_of_it(case: Case) -> None:
    """Only what can change a decision is compared: names, comments and the host's hooks are not."""
    assert Policy(name="one").fingerprint() == Policy(name="two").fingerprint()
    warned = Policy(
        name="one", breakers=(Breaker.model_validate({"glob": "*", "trips": [{"kind": "failures", "n": 2}]}),)
    )
    assert warned.fingerprint() != Policy(name="one").fingerprint()
    assert case["expect"]["fingerprints_differ"]


# Attempts and time.


@differs("ir.default.llm", "ir.default.mcp", "ir.default.retriever")
def test_nothing_is_tried_again_unless_the_policy_says_so(case: Case) -> None:
    if case["config"]["operation"] == "llm":
        steps = Failing(Policy(name="case"), "primary")
        call = steps.call()
        assert isinstance(call, d.Call)
        assert call.deadline == 600_000
        assert isinstance(steps.failed("timeout"), d.End)
    else:
        steps = Steps(Policy(name="case"))
        steps.call()
        steps.replied("tool")
        assert isinstance(steps.ended(status="failed"), d.Continue)
    assert case["expect"]["attempts"] == 3


@reproduces("ir.override_both", "ir.override_timeout_only", "ir.to_policy")
def test_a_policy_says_how_often_and_how_long(case: Case) -> None:
    often = case["config"].get("attempts", case["config"].get("override", {}).get("attempts"))
    rule = ToolRule(glob="tool", timeout=700, retry=Retry(times=1, least=5, most=5, jitter=False) if often else None)
    steps = Steps(Policy(name="case", tools=(rule,)))
    steps.call()
    steps.replied("tool")
    started = steps.send(e.ToolRequested(0, "1.0"))
    assert isinstance(started, d.Execute)
    assert started.deadline == 700
    after = steps.send(e.ToolEnded(0, "1.0", status="failed"))
    assert isinstance(after, d.Execute if often else d.Continue)
    assert case["expect"]


@differs("ir.override_zero")
def test_zero_attempts_and_no_time_are_mistakes(case: Case) -> None:
    override = case["config"]["override"]
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Retry(times=override["attempts"])
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        ToolRule(glob="*", timeout=override["timeout_s"])
    assert case["expect"]["attempts"] == "sdk default"


def test_the_shapes_used_here_are_the_configurations() -> None:
    """The interpreters of this directory read every configuration they are given to a ladder of the same meaning."""
    (rule,) = failures_of({"llm_attempts": 3, "fallback": "cheap"})
    assert [step.do for step in rule.then] == ["retry", "fallback"]
    assert failures_of({}) == ()
