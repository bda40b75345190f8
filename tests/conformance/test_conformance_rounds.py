"""Cases about one reply with tool calls: what is executed, what is refused, and what that leads to."""

from __future__ import annotations

from conformance_cases import Case, differs, reproduces
from conformance_steps import Steps
from conformance_world import RecordingStore, asks, events_of, model, policy_of, says

from engine.core import decisions as d
from engine.core.policy import Policy
from engine.run.driver import Driver
from engine.run.hooks import ToolInvocation
from engine.run.results import ToolResult


@reproduces("tool-limit-flow-error")
def test_a_round_past_the_limit_is_not_run_and_ends_the_run(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    steps.round()
    steps.call()
    decision = steps.round()
    assert isinstance(decision, d.End)
    (event,) = case["expect"]["events"]
    hit = decision.outcome.limit
    assert hit is not None
    assert decision.outcome.status == "incomplete"
    assert f"max {hit.resource.replace('_', ' ')} ({hit.maximum}) exceeded" == event["message_contains"]
    # Nothing was executed, and the call has its result all the same.
    assert case["expect"]["executed"] == []
    assert [reply.why for reply in decision.close] == ["stopped"]
    assert isinstance(steps.call(), d.End) == case["expect"]["ended"]


@reproduces("tool-limit-schedules-final")
def test_the_round_that_reaches_the_limit_is_run_and_the_next_call_is_final(case: Case) -> None:
    steps = Steps(policy_of(case["config"]))
    steps.call()
    decision = steps.replied("echo")
    assert isinstance(decision, d.RunTools)
    assert [type(v) for v in decision.verdicts] == [d.Execute]
    assert isinstance(steps.ended(), d.Continue)
    following = steps.call()
    assert isinstance(following, d.Call)
    assert {"finalizing": following.final, "instruction": following.instruction} == case["expect"]["next_call"]


@reproduces("tool-limit-schedules-final-on-hook-error")
async def test_a_failing_result_hook_does_not_undo_the_finalization(case: Case) -> None:
    executed: list[str] = []

    async def echo() -> str:
        executed.append("echo")
        return "echo"

    def fail(invocation: ToolInvocation, result: ToolResult) -> None:
        raise RuntimeError("cannot render")

    client = model(asks("echo"), says())
    result = await Driver(policy_of(case["config"]), client, [echo], after_tool=[fail]).run("question")
    expect = case["expect"]
    assert executed == expect["executed"]
    assert client.requests[1].messages[-1].text == expect["next_call"]["instruction"]
    assert (not client.requests[1].tools) == expect["next_call"]["finalizing"]
    assert result.status == "finalized"
    assert "cannot render" in result.messages[2].text


@reproduces("final-rejects-tool-call")
async def test_a_tool_call_in_the_final_answer_is_refused_and_ends_the_run(case: Case) -> None:
    executed: list[str] = []

    async def echo() -> str:
        executed.append("echo")
        return "echo"

    store = RecordingStore()
    result = await Driver(policy_of(case["config"]), model(asks("echo")), [echo], journal=store).run("question")
    assert executed == case["expect"]["executed"]
    assert [e for e in events_of(store.log) if e == "error"] == [e["type"] for e in case["expect"]["events"]]
    assert (result.status, result.reason) == ("failed", "finalization_disobeyed")
    assert "without tools" in result.messages[-1].text


@reproduces("defer-classify-2", "defer-classify-8")
def test_what_a_round_consists_of(case: Case) -> None:
    """Without a filter every registered tool is executed; an unknown one beside it is answered."""
    unknown = "unknown" in case["config"]["situation"]
    steps = Steps(Policy(name="case"))
    steps.call()
    names = ("nobody", "tool") if unknown else ("tool",)
    decision = steps.replied(*names, unknown=("nobody",))
    assert isinstance(decision, d.RunTools)
    seen = {
        "deferred": False,
        "executable": any(isinstance(v, d.Execute) for v in decision.verdicts),
        "unknown": any(isinstance(v, d.Reply) and v.why == "unknown_tool" for v in decision.verdicts),
    }
    assert seen == case["expect"]


@differs("flow-empty-tool-name", "run-bad-tool-name-not-counted")
async def test_a_blank_tool_name_is_an_unknown_tool(case: Case) -> None:
    client = model(asks(""), says())
    result = await Driver(policy_of(case["config"]), client).run("question")
    assert (result.status, len(client.requests)) == ("completed", 2)
    assert (result.used.tool_iterations, result.used.tool_calls, result.used.unknown_tools) == (1, 0, 1)
    assert "no tool named" in result.messages[2].text
