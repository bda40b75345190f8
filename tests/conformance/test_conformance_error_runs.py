"""Whole runs of the error-control cases, through the driver: models, retries, fallbacks, and going on later."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_error_run import ErrorRun, answer_of, assert_as_expected
from conformance_errors import policy_of_errors
from conformance_world import FakeModel, RecordingStore, asks, model, says
from otel_here import Here

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Reply
from engine.core.policy import Extend, FailureRule, Fallback, Finalize, Limit, Policy, Retry, ToolRule
from engine.run.driver import Driver, RunError
from engine.run.streaming import TextDelta
from engine.store.protocol import JournalError

FREE = Policy(name="case")


@reproduces(
    "ll.llm.error_ends_run",
    "ll.llm.fallback_model",
    "ll.llm.fallback_missing",
    "ll.max.default_when_unset",
    "ll.max.forces_final_call",
    "ll.tool.then_final",
    "ll.telemetry.exec_error",
    "ll.breaker.skips_third",
    "ll.breaker.under_threshold",
    "ll.unknown.continues",
    "tw.single_llm",
    "derived.parallel.same_round_all_execute",
    "derived.sequential.same_round_all_execute",
    "derived.max.final_call_may_fall_back",
    "derived.llm.fallback_failing_aborts",
    "derived.llm.fallback_sticky_no_failback",
)
async def test_run(case: Case) -> None:
    run = ErrorRun(case)
    await run.play()
    assert_as_expected(run)


@reproduces("ex.breaker")
async def test_a_stuck_tool_is_skipped_the_third_time(case: Case) -> None:
    run = ErrorRun(case)
    stuck = answer_of({"ev": "asks", "calls": [["boom", {}]]})
    run.models["primary"].answer = lambda n, request: stuck if n < 3 else says("done")
    await run.play()
    assert_as_expected(run)


@reproduces("ex.extend")
async def test_a_run_that_is_extended_ends_well(case: Case) -> None:
    config = case["config"]
    then = (Extend(by=config["on_max_iterations"]["extend"]), Finalize())
    rounds = Limit(resource="tool_iterations", max=config["max_iterations"], then=then)
    run = ErrorRun(case, Policy(name="case", limits=(rounds,)))
    await run.play()
    assert_as_expected(run)


@reproduces("tw.max.skip_tools_distinct_message")
async def test_the_final_request_offers_no_tools(case: Case) -> None:
    run = ErrorRun(case)
    result = await run.play()
    assert_as_expected(run)
    assert [not request.tools for request in run.models["primary"].requests] == case["expect"]["skip_tools_flags"]
    refs = [event.ref for event, _ in run.store.log if isinstance(event, e.ModelReplied)]
    assert (len(set(refs)) == 2) == case["expect"]["message_ids_distinct"]
    assert result.messages[-1].text == "final"


@reproduces("tw.fallback.sticky", "tw.activity.fallback")
async def test_who_answers_after_a_fallback(case: Case) -> None:
    run = ErrorRun(case)
    result = await run.play()
    cheap = case["config"]["fallback"]
    assert result.ok
    assert result.client == cheap
    assert [decision.client for _, decision in run.store.log if isinstance(decision, d.Call)][1:] == [cheap] * len(
        run.models[cheap].requests
    )
    assert case["expect"].get("used_fallback", case["expect"].get("second_iteration_client"))


@differs("derived.llm.fallback_model_not_reported")
async def test_the_outcome_names_who_answered_and_counts_who_failed(case: Case) -> None:
    run = ErrorRun(case)
    result = await run.play()
    assert (result.client, result.used.llm_calls) == (case["config"]["fallback"], 2)
    assert case["expect"]["total_llm_calls"] == 1


# Names nobody registered.


@reproduces("rt.execute_tool.unknown", "ll.single.unknown", "rl.unknown_continues", "tw.activity.unknown_flag")
async def test_an_unknown_tool_is_answered(case: Case) -> None:
    here = Here()
    result = await Driver(FREE, model(asks("ghost"), says()), telemetry=here.telemetry).run("question")
    assert result.ok
    assert "no tool named `ghost`" in result.messages[2].text
    expect = case["expect"]
    for name, wanted in expect.get("metric", {"agent.tool.call.unknown": 1}).items():
        assert here.counted(name) == wanted
    assert result.used.unknown_tools == 1
    assert not expect.get("error")
    assert not expect.get("failed")


@differs("rt.execute_tool.unknown_older")
async def test_an_unknown_tool_ends_a_run_only_where_the_policy_says_so(case: Case) -> None:
    policy = Policy(name="case", limits=(Limit(resource="unknown_tools", max=1),))
    result = await Driver(policy, model(asks("ghost"), asks("ghost"), says())).run("question")
    assert (result.status, result.reason) == ("incomplete", "unknown_tools")
    assert (await Driver(FREE, model(asks("ghost"), says())).run("question")).ok
    assert case["expect"]["error"] == "unknown tool"


@reproduces("rt.llm.unknown_tool_call_kept")
async def test_a_call_of_an_unknown_tool_is_kept_and_nobody_is_asked(case: Case) -> None:
    asked: list[Any] = []
    policy = Policy(name="case", tools=(ToolRule(glob="*", ask=True),))
    here = Here()
    driver = Driver(
        policy,
        model(asks("ghost"), says()),
        approver=lambda request: asked.append(request) or True,
        telemetry=here.telemetry,
    )
    result = await driver.run("question")
    assert [call.name for call in result.messages[1].tool_calls] == ["ghost"]
    assert bool(asked) == case["expect"]["tool_call"]["needs_approval"]
    assert here.counted("agent.tool.call.unknown") == case["expect"]["metrics"]["agent.tool.call.unknown"]


# Model calls.


def blocked(request: Any, context: Any) -> None:
    raise RuntimeError("blocked")


@reproduces("rt.llm.before_hook_error")
async def test_a_hook_before_a_call_may_end_the_run(case: Case) -> None:
    client = model(says())
    result = await Driver(FREE, client, before_model=[blocked]).run("question")
    assert case["expect"]["error_contains"] in result.error
    assert len(client.requests) == case["expect"]["llm_called"]


@differs("derived.llm.guardrail_error_is_retried")
async def test_a_hook_that_says_no_is_not_asked_again(case: Case) -> None:
    asked = []

    def guard(request: Any, context: Any) -> None:
        asked.append(context.attempt)
        raise RuntimeError("blocked")

    rule = FailureRule(reasons=("*",), then=(Retry(times=case["config"]["llm_attempts"] - 1, least=1, most=1),))
    result = await Driver(Policy(name="case", failures=(rule,)), model(says()), before_model=[guard]).run("question")
    assert (result.status, asked) == ("failed", [1])
    assert case["expect"]["before_llm_calls"] == 3


@reproduces("rt.llm.error")
async def test_a_failure_nobody_has_a_rule_for(case: Case) -> None:
    run = ErrorRun(case)
    result = await run.play()
    assert (result.status == "failed") == case["expect"]["error"]
    assert "boom" in result.error


@reproduces("ll.retry.exhausted")
async def test_the_last_error_is_the_one_told(case: Case) -> None:
    attempts = case["config"]["attempts"]
    client = FakeModel(lambda n, request: ModelError("network", f"error {n + 1}"))
    rule = FailureRule(reasons=("*",), then=(Retry(times=attempts - 1, least=1, most=1),))
    result = await Driver(Policy(name="case", failures=(rule,)), client).run("question")
    assert len(client.requests) == case["expect"]["calls"]
    assert f"error {attempts}" in result.error


@reproduces("ll.retry.parent_cancel")
async def test_a_wait_can_be_cut(case: Case) -> None:
    failed = asyncio.Event()

    def answer(n: int, request: Any) -> Any:
        failed.set()
        return ModelError("network", "down")

    client = FakeModel(answer)
    rule = FailureRule(reasons=("*",), then=(Retry(times=case["config"]["attempts"] - 1, least=60_000, most=60_000),))
    handle = Driver(Policy(name="case", failures=(rule,)), client).start("question")
    await failed.wait()
    await asyncio.sleep(0.01)
    handle.cancel()
    result = await asyncio.wait_for(handle, 5)
    assert result.status == case["expect"]["error"]
    assert len(client.requests) == 1


@reproduces("rt.events.text_order")
async def test_text_comes_between_the_begin_and_the_end_of_its_call(case: Case) -> None:
    async def stream(on_delta: Any) -> Reply:
        on_delta("hi")
        return says("hi")

    client = FakeModel(lambda n, request: stream)
    events = [type(event).__name__ async for event in Driver(FREE, client).stream("question")]
    texts = [name for name in events if name in ("CallStarted", TextDelta.__name__, "CallEnded")]
    assert texts == ["CallStarted", "TextDelta", "CallEnded"]
    assert len(texts) == len(case["expect"]["events"])


# Going on under another policy, or with other clients.


async def ended(policy: Policy, name: str = "scripted") -> RecordingStore:
    store = RecordingStore()
    client = model(says())
    client.model = name
    await Driver(policy, client, journal=store).run("question", run_id="r")
    return store


@reproduces("tf.verify_mismatch")
async def test_a_run_goes_on_under_the_policy_it_began_with(case: Case) -> None:
    store = await ended(FREE)
    other = Policy(name="case", limits=(Limit(resource="llm_calls", max=3),))
    with pytest.raises(RunError, match="another policy"):
        await Driver(other, model(says()), journal=store).resume("r")
    assert case["expect"]["error"]


@reproduces("tf.verify_disabled")
async def test_a_run_goes_on_under_another_policy_where_that_is_wanted(case: Case) -> None:
    def look() -> str:
        return "seen"

    store, asking = RecordingStore(), (ToolRule(glob="look", ask=True),)
    began = Driver(Policy(name="case", tools=asking), model(asks("look")), [look], journal=store)
    assert (await began.run("question", run_id="r")).status == "suspended"
    began.answer("r:1.0")
    other = Policy(name="case", tools=asking, limits=(Limit(resource="llm_calls", max=3),))
    driver = Driver(other, model(says()), [look], journal=store)
    result = await driver.resume("r", migrate=case["config"]["disable_check"])
    assert (result.status, case["expect"]["error"]) == ("completed", None)


@reproduces("tf.changes.named_llm")
async def test_a_run_goes_on_with_the_models_it_began_with(case: Case) -> None:
    store = await ended(FREE, "one")
    with pytest.raises(RunError, match="client primary: scripted one in the journal, scripted scripted now"):
        await Driver(FREE, model(says()), journal=store).resume("r")
    assert case["expect"]["fingerprints_differ"]


@differs("derived.state.restore_keeps_trip_with_other_thresholds", "derived.state.restore_with_breaker_removed")
async def test_breakers_are_not_exchanged_under_a_run(case: Case) -> None:
    before = policy_of_errors({"max_consecutive_same_args": 2})
    after = policy_of_errors({"max_consecutive_same_args": case["config"].get("new_threshold", 0)})
    store = await ended(before)
    with pytest.raises(RunError, match="another policy"):
        await Driver(after, model(says()), journal=store).resume("r")
    assert len(case["expect"]["queries"]) == 1


@reproduces("ld.off.no_reconnect")
async def test_without_a_journal_there_is_nothing_to_come_back_to(case: Case) -> None:
    driver = Driver(FREE, model(says()))
    await driver.run("question", run_id="r")
    with pytest.raises(RunError, match="no journal"):
        driver.resume("r")
    with pytest.raises(JournalError):
        Driver(FREE, model(says()), journal=RecordingStore()).resume("r")
    assert case["expect"]["error"] == "run not found"


def test_the_fallback_of_a_configuration_is_one_of_the_policys_clients() -> None:
    policy = policy_of_errors({"fallback": "cheap", "on_llm_failure": "fallback_model"})
    assert policy.clients() == ("cheap",)
    (rule,) = policy.failures
    assert rule.then == (Fallback(clients=("cheap",)),)
