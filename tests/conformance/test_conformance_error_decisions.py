"""Cases about single decisions: what follows a failure or a limit, and what a configuration may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import budget_of, failures_of, policy_of_errors, script
from conformance_steps import Steps, restored
from conformance_world import limit

import policy_lang
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Breaker, Extend, FailureRule, Finalize, Limit, Policy, Retry, Stop, ToolRule
from engine.core.state import ClientInfo


class Failing(Steps):
    """Steps of a host with several clients."""

    def __init__(self, policy: Policy, *clients: str) -> None:
        self.clients = tuple(ClientInfo(name) for name in clients)
        super().__init__(policy)

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        if isinstance(event, e.RunStarted):
            event = e.RunStarted(event.at, event.run, clients=self.clients)
        return super().send(event)

    def failed(self, reason: str = "provider", attempt: int = 1, **more: Any) -> d.AnyDecision:
        return self.send(e.ModelFailed(self.now, str(self._calls), attempt, reason, usage=Usage(1, 0), **more))


# After a failure.


@reproduces("ec.llm.no_hook_aborts")
def test_without_a_ladder_a_failure_ends_the_run(case: Case) -> None:
    steps = Failing(Policy(name="case"), "primary")
    steps.call()
    ended = steps.failed()
    assert isinstance(ended, d.End) == (case["expect"]["decision"] == "abort")
    assert (ended.outcome.status, ended.outcome.reason) == ("failed", "llm_failure")  # type: ignore[union-attr]


@reproduces("ec.llm.fallback_without_client", "tw.activity.missing_fallback")
def test_a_fallback_that_nobody_has_is_skipped(case: Case) -> None:
    steps = Failing(policy_of_errors(case["config"]), "primary")
    steps.call()
    ended = steps.failed()
    assert isinstance(ended, d.End)
    assert ended.outcome.status == "failed"
    assert case["expect"].get("decision", "abort") == "abort"


@reproduces("rl.decide_llm_shared")
def test_a_fallback_goes_to_the_next_client(case: Case) -> None:
    steps = Failing(policy_of_errors(case["config"]), "primary", "cheap")
    steps.call()
    call = steps.failed()
    assert isinstance(call, d.Call)
    assert (call.client, call.attempt) == (case["config"]["fallback"], 1)
    assert case["expect"]["decision"] == "fallback_model"


@reproduces("derived.llm.attempt_is_policy_maximum")
def test_what_follows_the_retries_is_taken_once_they_are_spent(case: Case) -> None:
    config = case["config"]
    rule = FailureRule.model_validate(
        {"reasons": ["*"], "then": [{"do": "retry", "times": config["llm_attempts"] - 1}, {"do": "finalize"}]}
    )
    steps = Failing(Policy(name="case", failures=(rule,)), "primary")
    steps.call()
    taken = []
    for attempt, _ in enumerate(script(case), 1):
        decision = steps.failed("unknown", attempt)
        if isinstance(decision, d.Retry):
            steps.now = decision.not_before
            steps.send(e.RetryDue(steps.now, "1"))
        else:
            taken.append(attempt)
    assert taken == [case["expect"]["hook_attempt"]]
    assert len(taken) == case["expect"]["hook_calls"]


@reproduces("derived.llm.retry_then_ok_no_hook")
def test_waits_double_and_no_later_step_is_taken(case: Case) -> None:
    rule = FailureRule(reasons=("*",), then=(Retry(times=case["config"]["llm_attempts"] - 1, jitter=False), Finalize()))
    steps = Failing(Policy(name="case", failures=(rule,)), "primary")
    steps.call()
    waits = []
    for attempt in (1, 2):
        decision = steps.failed("unknown", attempt)
        assert isinstance(decision, d.Retry)
        waits.append((decision.not_before - steps.now) / 1000)
        steps.now = decision.not_before
        steps.send(e.RetryDue(steps.now, "1"))
    assert waits == case["expect"]["backoff_s"]
    ended = steps.replied(text=True, attempt=3)
    assert isinstance(ended, d.End)
    assert ended.outcome.status == "completed"


@differs("derived.llm.auth_error_retried")
@pytest.mark.parametrize(("reasons", "attempts"), [(("*",), 1), (("provider",), 1), (("auth",), 3)])
def test_a_wrong_key_is_tried_again_only_by_its_own_name(case: Case, reasons: tuple[str, ...], attempts: int) -> None:
    rule = FailureRule(reasons=reasons, then=(Retry(times=case["config"]["llm_attempts"] - 1),))
    steps = Failing(Policy(name="case", failures=(rule,)), "primary")
    steps.call()
    made = 1
    while isinstance(decision := steps.failed("auth", made), d.Retry):
        steps.now = decision.not_before
        steps.send(e.RetryDue(steps.now, "1"))
        made += 1
    assert made == attempts
    assert case["expect"]["primary_calls"] == 3


@differs("derived.llm.retry_after_ignored")
@pytest.mark.parametrize(("most_s", "wait_s"), [(30, 30), (90, 60)])
def test_what_the_provider_asks_for_is_kept_up_to_the_bound(case: Case, most_s: int, wait_s: int) -> None:
    asked = case["script"][0]["retry_after_s"]
    rule = FailureRule(reasons=("rate_limit",), then=(Retry(times=1, most=most_s * 1000, jitter=False),))
    steps = Failing(Policy(name="case", failures=(rule,)), "primary")
    steps.call()
    decision = steps.failed("rate_limit", retry_after=asked * 1000)
    assert isinstance(decision, d.Retry)
    assert decision.not_before == wait_s * 1000
    assert case["expect"]["wait_s"] == 1


@differs("derived.llm.final_call_action_invalid")
def test_a_failure_may_lead_to_a_final_call(case: Case) -> None:
    steps = Failing(Policy(name="case", failures=(FailureRule(reasons=("*",), then=(Finalize(),)),)), "primary")
    steps.call()
    assert isinstance(steps.failed(), d.Continue)
    final = steps.call()
    assert isinstance(final, d.Call)
    assert (final.final, final.why) == (True, "llm_failure")
    assert case["expect"]["decision"] == "abort"


@differs("derived.llm.abort_is_zero_value")
def test_a_ladder_says_what_it_does(case: Case) -> None:
    with pytest.raises(ValueError, match="at least 1 item"):
        FailureRule(reasons=("*",), then=())
    assert isinstance(FailureRule(reasons=("*",), then=(Stop(),)).then[0], Stop)
    assert case["expect"]["decision"] == "abort"


# At the maximum of rounds.


def rounds(most: int, *then: Any) -> Steps:
    return Steps(Policy(name="case", limits=(Limit(resource="tool_iterations", max=most, then=then),)))


def admitted(steps: Steps) -> tuple[int, bool]:
    """Rounds that run while the model asks for tools, and whether a final call follows them."""
    done = 0
    while True:
        call = steps.call()
        if isinstance(call, d.Call) and call.final:
            return done, True
        decision = steps.round()
        if not isinstance(decision, d.RunTools):
            return done, False
        done += 1


@reproduces("ec.max.no_hook_final_call")
def test_a_limit_that_finalizes(case: Case) -> None:
    most = case["config"]["max_iterations"]
    assert admitted(rounds(most, Finalize())) == (most, case["expect"]["decision"] == "continue_with_final_call")


@reproduces("ec.max.extra_capped", "ec.max.second_grant_ignored", "ec.max.clamp_9_of_5", "ec.max.clamp_2_of_5")
def test_an_extension_at_most_doubles_and_is_granted_once(case: Case) -> None:
    (event,) = script(case)
    most = case["config"]["max_iterations"]
    asked = event.get("requested") or case["config"]["on_max_iterations"]["extend"]
    extra = case["expect"].get("extra", most)
    assert admitted(rounds(most, Extend(by=asked), Finalize())) == (most + extra, True)


@differs("ec.max.clamp_0_of_5", "derived.max.extra_-3")
def test_an_extension_by_nothing_is_a_mistake(case: Case) -> None:
    (event,) = script(case)
    asked = event.get("requested", case["config"].get("on_max_iterations", {}).get("extend"))
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Extend(by=asked)
    assert case["expect"].get("extra", 0) == 0


@reproduces("ec.max.effective_4")
def test_a_limit_is_what_it_says(case: Case) -> None:
    assert admitted(rounds(case["config"]["max_iterations"]))[0] == case["expect"]["effective_max"]


@differs("ec.max.effective_0", "derived.max.agent_default_is_5", "derived.max.clamp_unset_original")
def test_there_is_no_limit_but_what_the_policy_states(case: Case) -> None:
    steps = Steps(Policy(name="case"))
    for _ in range(50):
        assert isinstance(steps.call(), d.Call)
        steps.round()
    assert steps.used.tool_iterations == 50
    assert admitted(rounds(0, Finalize())) == (0, True)
    assert case["expect"].get("effective_max", case["expect"].get("extra")) in (5, 10)


@differs("derived.max.zero_value_action")
def test_a_limit_may_end_the_run(case: Case) -> None:
    assert admitted(rounds(3, Stop())) == (3, False)
    assert "aborted" not in case["expect"]["decision"]


@differs("derived.max.extend_to_double", "ll.max.extend_once")
def test_what_a_limit_grants_is_run(case: Case) -> None:
    config = case["config"]
    most, extra = config["max_iterations"], config["on_max_iterations"]["extend"]
    steps = rounds(most, Extend(by=extra), Finalize())
    assert admitted(steps) == (2 * most, True)
    assert steps.used.tool_iterations == case["expect"].get("tool_rounds", most) + 1


@reproduces("tw.max.second_grant")
def test_what_was_extended_once_is_not_extended_again(case: Case) -> None:
    config = case["config"]
    steps = rounds(config["max_iterations"], Extend(by=config["on_max_iterations"]["extend"]), Finalize())
    assert admitted(steps) == (2, True)
    assert steps.used.llm_calls >= case["expect"]["llm_calls_at_least"]


# Names of tools.


@reproduces(
    "ut.find_tool.empty_registry",
    "ut.unknown.unregistered",
    "ut.unknown.registered",
    "ut.unknown.flag_wins_over_registry",
)
def test_who_is_unknown(case: Case) -> None:
    """What the host says of a call decides; the core keeps no registry."""
    (event,) = script(case)
    registered = event["name"] in case["config"]["tools"] and not event.get("flag")
    steps = Steps(Policy(name="case"))
    steps.call()
    decision = steps.replied(event["name"], unknown=() if registered else (event["name"],))
    assert isinstance(decision, d.RunTools)
    (verdict,) = decision.verdicts
    unknown = isinstance(verdict, d.Reply) and verdict.why == "unknown_tool"
    assert unknown == case["expect"].get("unknown", not case["expect"].get("found"))


# People.


def asking(within: int | None = None) -> Steps:
    steps = Steps(Policy(name="case", tools=(ToolRule(glob="*", ask=True, ask_within=within),)))
    steps.call()
    return steps


@reproduces("rt.approval.flag_true", "rt.approval.policy_overrides")
def test_the_policy_says_who_is_asked(case: Case) -> None:
    assert case["expect"]["needs_approval"]
    asked = asking().replied("t")
    assert isinstance(asked, d.RunTools)
    assert isinstance(asked.verdicts[0], d.Ask)
    rules = (ToolRule(glob="*", ask=True), ToolRule(glob="t", allow=True))
    steps = Steps(Policy(name="case", tools=rules))
    steps.call()
    allowed = steps.replied("t")
    assert isinstance(allowed, d.RunTools)
    assert isinstance(allowed.verdicts[0], d.Execute)


@reproduces("ll.approval.default_timeout_1")
def test_how_long_a_person_has(case: Case) -> None:
    steps = asking(case["config"]["approval_timeout_s"] * 1000)
    decision = steps.replied("t")
    assert isinstance(decision, d.RunTools)
    (ask,) = decision.verdicts
    assert isinstance(ask, d.Ask)
    assert ask.until == case["expect"]["timeout_s"] * 1000


@reproduces("ld.approval.round_trip")
def test_a_question_survives_the_process(case: Case) -> None:
    steps = asking()
    steps.replied("t")
    steps.state = restored(steps)
    steps.send(e.ApprovalGiven(0, "1.0"))
    assert isinstance(steps.ended(), d.Continue)
    steps.call()
    ended = steps.replied(text=True)
    assert isinstance(ended, d.End)
    assert (ended.outcome.status == "completed") == (case["expect"]["run"] == "ok")


@reproduces("ld.approval.already_resolved")
def test_a_second_answer_is_refused(case: Case) -> None:
    steps = asking()
    steps.replied("t")
    steps.send(e.ApprovalGiven(0, "1.0"))
    again = steps.look(e.ApprovalGiven(0, "1.0"))
    assert isinstance(again, d.Illegal)
    assert "1.0" in again.problem
    assert case["expect"]["second_answer"].startswith("error")


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
