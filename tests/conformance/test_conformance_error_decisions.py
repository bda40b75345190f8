"""Cases about single decisions: what follows a failure, a limit, an unknown name or a person's answer."""

from __future__ import annotations

from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import policy_of_errors, script
from conformance_steps import Failing, Steps, restored

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Extend, FailureRule, Finalize, Limit, Policy, Retry, Stop, ToolRule

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
