"""Cases about one tool call, through the driver: its hooks, its failure, its place, and the person who is asked."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance_cases import Case, differs, reproduces
from conformance_errors import policy_of_errors
from conformance_world import RecordingStore, asks, model, says

from engine.core import events as e
from engine.core.policy import Policy, ToolRule
from engine.core.transcript import problems
from engine.run.driver import Driver
from engine.run.hooks import ToolInvocation
from engine.run.results import ToolResult
from engine.run.streaming import ToolFinished, ToolRefused, ToolStarted
from engine.run.tools import Tool, ToolContext

FREE = Policy(name="case")


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
    assert "`boom` is switched off for now" in skipped.text
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
