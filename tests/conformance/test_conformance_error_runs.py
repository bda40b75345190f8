"""Whole runs of the error-control cases, through the driver: models, tools, hooks and people as the scripts say."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from conformance_cases import Case, differs, reproduces
from conformance_errors import policy_of_errors, script
from conformance_world import USAGE, FakeModel, RecordingStore, asks, model, says

from engine.clients import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, ToolCall
from engine.core.policy import Extend, FailureRule, Fallback, Finalize, Limit, Policy, Retry, ToolRule
from engine.core.transcript import problems
from engine.run.driver import Driver, RunError
from engine.run.hooks import ToolInvocation
from engine.run.result import RunResult
from engine.run.results import ToolResult
from engine.run.streaming import TextDelta, ToolFinished, ToolRefused, ToolStarted
from engine.run.tools import Tool, ToolContext
from engine.store.protocol import JournalError

FREE = Policy(name="case")


class ErrorRun:
    """One case played: its models (``primary`` and the one it falls back on), its tools, and what was seen."""

    def __init__(self, case: Case, policy: Policy | None = None) -> None:
        self.case = case
        self.config = case["config"]
        self.policy = policy or policy_of_errors(self.config)
        self.store = RecordingStore()
        self.answers: dict[str, list[Reply | ModelError]] = defaultdict(list)
        self.outcomes: dict[str, list[bool]] = defaultdict(list)
        self.executed: list[str] = []
        self.result: RunResult | None = None
        for event in script(case):
            self._read(event)
        cheap = self.config.get("fallback")
        self.models = {"primary": self._model("primary", "primary")}
        if cheap:
            self.models[cheap] = self._model(cheap, "fallback")

    def _read(self, event: dict[str, Any]) -> None:
        if event["ev"] in ("says", "asks", "fails"):
            self.answers[event["client"]].append(_answer(event))
        elif event["ev"] in ("tool_ok", "tool_fail"):
            self.outcomes[event["tool"]].append(event["ev"] == "tool_ok")

    def _model(self, name: str, script_name: str) -> FakeModel:
        answers = self.answers[script_name]
        made = FakeModel(lambda n, request: answers[n])
        made.name = name
        return made

    def tools(self) -> list[Tool]:
        asked = {name for event in script(self.case) for name, _ in event.get("calls", ())}
        names = {*self.config.get("tools", ()), *asked, *self.outcomes} - {"ghost"}
        return [Tool(self._tool(name), name=name) for name in sorted(names)]

    def _tool(self, name: str) -> Any:
        async def run(**arguments: Any) -> str:
            self.executed.append(name)
            if self.outcomes[name] and not self.outcomes[name].pop(0):
                raise RuntimeError("it did not work")
            return "done"

        return run

    async def play(self, **options: Any) -> RunResult:
        driver = Driver(
            self.policy, self.models, self.tools(), journal=self.store, allow_missing_clients=True, **options
        )
        self.result = await asyncio.wait_for(driver.run("question"), 20)
        assert problems(self.result.messages) == []
        return self.result

    def seen(self) -> dict[str, Any]:
        """What a case's expectation may speak of, in its words."""
        result = self.result
        assert result is not None
        requests = {name: len(model.requests) for name, model in self.models.items()}
        failed = Counter(message.name for message in self._results("failed"))
        skipped = len(self._refused("breaker"))
        return {
            "run": "ok" if result.ok else "error",
            "content": result.text,
            "finish_reason": {"finalized": "max_iterations", "completed": "complete"}.get(result.status, result.status),
            "llm_calls": sum(requests.values()),
            "primary_calls": requests["primary"],
            "tool_calls": len(self.executed),
            "tool_executions": len(self.executed),
            "telemetry": {
                "tools_total": len(self.executed) + skipped,
                "tools_failed": failed.total(),
                "failed_by_name": dict(failed),
            },
        }

    def _results(self, status: str) -> list[ToolCall]:
        """Calls whose execution ended so."""
        ids = [event.id for event, _ in self.store.log if isinstance(event, e.ToolEnded) and event.status == status]
        assert self.result is not None
        asked = [m for m in self.result.messages if m.tool_calls]
        return [asked[int(id.split(".")[0]) - 1].tool_calls[int(id.split(".")[1])] for id in ids]

    def _refused(self, why: str) -> list[d.Reply]:
        rounds = [decision for _, decision in self.store.log if isinstance(decision, d.RunTools)]
        return [v for made in rounds for v in made.verdicts if isinstance(v, d.Reply) and v.why == why]


def _answer(event: dict[str, Any]) -> Reply | ModelError:
    if event["ev"] == "fails":
        return ModelError("provider", event["error"], status=event.get("status"))
    calls = tuple(ToolCall(f"c{i}", name, json.dumps(args)) for i, (name, args) in enumerate(event.get("calls", ())))
    message = Message("assistant", event.get("text", ""), tool_calls=calls)
    return Reply(message, finish="tool_calls" if calls else "stop", usage=USAGE)


COMPARED = (
    "run",
    "content",
    "finish_reason",
    "llm_calls",
    "primary_calls",
    "tool_calls",
    "tool_executions",
    "telemetry",
)


def assert_as_expected(run: ErrorRun) -> None:
    seen, expect = run.seen(), run.case["expect"]
    for name in set(COMPARED) & expect.keys():
        wanted, got = expect[name], seen[name]
        assert ({k: got[k] for k in wanted} if name == "telemetry" else got) == wanted, name
    if "error_contains" in expect:
        assert run.result is not None
        assert expect["error_contains"] in run.result.error


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
    stuck = _answer({"ev": "asks", "calls": [["boom", {}]]})
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
    result = await Driver(FREE, model(asks("ghost"), says())).run("question")
    assert result.ok
    assert "no tool named `ghost`" in result.messages[2].text
    expect = case["expect"]
    assert result.used.unknown_tools == expect.get("metric", {"": 1}).get("agent.tool.call.unknown", 1)
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
    driver = Driver(policy, model(asks("ghost"), says()), approver=lambda request: asked.append(request) or True)
    result = await driver.run("question")
    assert [call.name for call in result.messages[1].tool_calls] == ["ghost"]
    assert bool(asked) == case["expect"]["tool_call"]["needs_approval"]
    assert result.used.unknown_tools == case["expect"]["metrics"]["agent.tool.call.unknown"]


# One tool.


async def boom() -> str:
    raise RuntimeError("it did not work")


@reproduces("rt.execute_tool.error", "ll.single.exec_error", "ll.parallel.error_in_message")
async def test_what_a_tool_fails_with_is_told_to_the_model(case: Case) -> None:
    store = RecordingStore()
    result = await Driver(FREE, model(asks("boom"), says()), [boom], journal=store).run("question")
    assert result.ok
    assert "it did not work" in result.messages[2].text
    assert [event.status for event, _ in store.log if isinstance(event, e.ToolEnded)] == ["failed"]
    assert case["expect"].get("failed", True)


@reproduces("ll.parallel.order_preserved", "ll.sequential.all_succeed")
async def test_results_stand_in_the_models_order(case: Case) -> None:
    names = [name for name, _ in case["script"][0]["calls"]]
    ended: list[str] = []

    def make(name: str, wait: float) -> Tool:
        async def run() -> str:
            await asyncio.sleep(wait)
            ended.append(name)
            return name

        return Tool(run, name=name)

    tools = [make(name, 0.05 if name == names[0] else 0) for name in names]
    result = await Driver(FREE, model(asks(*names), says()), tools).run("question")
    assert [m.text for m in result.messages if m.role == "tool"] == case["expect"].get("message_order", names)
    assert ended == names[::-1]


@differs("rt.tool_meta.idempotency_key")
async def test_the_key_of_an_execution_is_its_name(case: Case) -> None:
    keys = []

    async def look(context: ToolContext) -> str:
        keys.append(context.idempotency_key)
        return "found"

    await Driver(FREE, model(asks("look"), asks("look"), says()), [look]).run("question", run_id="run-1")
    assert keys == ["run-1:1.0", "run-1:2.0"]
    assert case["expect"]["idempotency_key"] not in keys


async def echo(text: str = "") -> str:
    return text


def rewrite_arguments(invocation: ToolInvocation) -> dict[str, Any]:
    return {"text": "rewritten args"}


def rewrite_result(invocation: ToolInvocation, result: ToolResult) -> ToolResult:
    return ToolResult("rewritten")


@reproduces("rt.hooks.before_tool_changes_args", "rt.hooks.after_tool_changes_result")
async def test_hooks_around_a_tool(case: Case) -> None:
    before = [rewrite_arguments] if "before_tool" in case["config"]["hooks"] else []
    after = [] if before else [rewrite_result]
    driver = Driver(FREE, model(asks("echo"), says()), [echo], before_tool=before, after_tool=after)
    result = await driver.run("question")
    assert result.messages[2].text == case["expect"].get("tool_sees", case["expect"].get("result"))


def deny(invocation: ToolInvocation) -> ToolResult:
    return ToolResult("not for you: no ticket", "failed")


def allow(invocation: ToolInvocation) -> None:
    return None


def no_authorizer(invocation: ToolInvocation) -> None:
    raise RuntimeError("no authorizer")


@reproduces("rt.authorize.no_authorizer", "rt.authorize.allowed", "rt.authorize.denied_reason")
async def test_a_hook_may_stand_in_a_tools_way(case: Case) -> None:
    given = case["config"].get("authorizer", "")
    hooks = [] if not given else [allow] if given == "allow" else [deny]
    result = await Driver(FREE, model(asks("echo"), says()), [echo], before_tool=hooks).run("question")
    assert ("no ticket" not in result.messages[2].text) == case["expect"]["allowed"]
    assert result.ok


@reproduces("ll.sequential.hard_error_synthetic", "ll.single.auth_error")
async def test_a_hook_that_fails_is_the_tools_failure(case: Case) -> None:
    ran = []

    async def a() -> None:
        ran.append("a")

    store = RecordingStore()
    driver = Driver(FREE, model(asks("a"), says()), [a], before_tool=[no_authorizer], journal=store)
    result = await driver.run("question")
    assert result.ok
    assert "no authorizer" in result.messages[2].text
    assert ran == []
    assert [event.status for event, _ in store.log if isinstance(event, e.ToolEnded)] == ["failed"]
    assert not case["expect"].get("executed")


@reproduces("derived.skip.message_role_tool")
async def test_what_a_skipped_call_looks_like(case: Case) -> None:
    policy = policy_of_errors(case["config"])
    handle = Driver(policy, model(asks("boom"), asks("boom"), says()), [boom]).start("question", stream=True)
    events = [event async for event in handle]
    result = await handle
    skipped = result.messages[4]
    assert skipped.role == case["expect"]["message"]["role"]
    assert "`boom` keeps failing and is switched off" in skipped.text
    # It is told beside the others, as a call that was answered and not started.
    assert [event.text for event in events if isinstance(event, ToolRefused)] == [skipped.text]
    assert len([event for event in events if isinstance(event, ToolStarted)]) == 1
    assert len([event for event in events if isinstance(event, ToolFinished)]) == 1


# People.


@reproduces(
    "ll.single.approved", "ll.single.handler_approves", "ll.single.handler_rejects", "ll.single.streaming_approve"
)
async def test_a_person_decides(case: Case) -> None:
    rejects = case["config"].get("approval_handler") == "reject"
    ran = []

    async def t() -> str:
        ran.append("t")
        return "done"

    driver = Driver(policy_of_errors(case["config"]), model(asks("t"), says()), [t], approver=lambda r: not rejects)
    handle = driver.start("question", stream=case["config"].get("streaming", False))
    result = await handle
    assert bool(ran) == case["expect"]["executed"]
    assert result.ok
    assert ("did not allow" in result.messages[2].text) == rejects


@reproduces("ll.single.approval_timeout")
async def test_nobody_answers_in_time(case: Case) -> None:
    within = round(case["config"]["approval_timeout_s"] * 1000)
    policy = Policy(name="case", tools=(ToolRule(glob="echo", ask=True, ask_within=within),))

    async def never(request: Any) -> bool:
        await asyncio.Event().wait()
        return True

    result = await Driver(policy, model(asks("echo"), says()), [echo], approver=never).run("question")
    assert result.ok
    assert "in time" in result.messages[2].text
    assert "timed out" in case["expect"]["error_contains"]


@reproduces("ll.single.approval_ctx_cancel", "ld.cancel.mid_run")
async def test_a_run_is_cancelled_while_somebody_is_asked(case: Case) -> None:
    waiting = asyncio.Event()

    async def never(request: Any) -> bool:
        waiting.set()
        await asyncio.Event().wait()
        return True

    policy = Policy(name="case", tools=(ToolRule(glob="echo", ask=True),))
    handle = Driver(policy, model(asks("echo"), says()), [echo], approver=never).start("question")
    await waiting.wait()
    handle.cancel()
    result = await handle
    assert result.status == case["expect"].get("run", case["expect"].get("error"))
    assert problems(result.messages) == []


@differs("ld.cancel.after_completion")
async def test_cancelling_a_run_that_has_ended_changes_nothing(case: Case) -> None:
    handle = Driver(FREE, model(says())).start("question")
    result = await handle
    handle.cancel()
    assert (await handle) is result
    assert result.ok
    assert "already completed" in case["expect"]["cancel"]


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


@reproduces("tf.changes.named_llm")
async def test_a_run_goes_on_with_the_models_it_began_with(case: Case) -> None:
    store = await ended(FREE, "one")
    with pytest.raises(RunError, match="began with client `primary` as scripted one; now it is scripted scripted"):
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
