"""A policy over agents of Pydantic AI: its faces, structured output, people. The models are functions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.messages import ModelResponse, TextPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from pydantic_ai_here import FINAL, THREE, City, Model, agent, calls, city, in_a_loop, policy

from engine.adapters.pydantic_ai import PolicyCapability, PolicyStopped

# Faces.


def test_a_sync_run_ends_with_a_text_and_an_outcome_and_lines_of_the_log():
    lines: list[str] = []
    capability = PolicyCapability(policy(THREE), log=lines.append)
    model = Model(calls("search"))
    model.replies = [calls("search"), calls("search"), calls("search")]
    result = agent(model, capability).run_sync("Go.")
    assert result.output == "[Stopped: the limit on llm_calls is reached (3 of 3)]"
    outcome = capability.outcome(result)
    assert (outcome.status, outcome.reason) == ("incomplete", "llm_calls")
    assert len(model.asked) == 3
    assert any("llm_calls" in str(line) for line in lines)


@in_a_loop
async def test_pieces_of_text_come_before_the_end():
    capability = PolicyCapability(policy(THREE))
    model = Model("It is forty two.")
    seen = []
    async with agent(model, capability).run_stream("Go.") as stream:
        async for piece in stream.stream_text(delta=True, debounce_by=None):
            seen.append(piece)
            assert capability.outcome(stream) is None
    assert len(seen) == 4
    assert capability.outcome(stream).status == "completed"


@in_a_loop
async def test_a_stream_that_breaks_off_keeps_its_text():
    capability = PolicyCapability(policy("on llm_failure *  retry 3\n"))
    model = Model("It is BREAK")
    async with agent(model, capability).run_stream("Go.") as stream:
        text = await stream.get_output()
    outcome = capability.outcome(stream)
    assert (outcome.status, outcome.reason) == ("failed", "llm_failure")
    assert text.startswith("It is")
    assert "[Stopped: " in text
    assert len(model.asked) == 1


@in_a_loop
async def test_a_stream_that_is_left_ends_its_run():
    capability = PolicyCapability(policy(THREE))
    made = agent(Model("It takes a long time to say all of this."), capability)
    with suppress(RuntimeError):
        async with made.run_stream("Go.") as stream:
            async for _ in stream.stream_text(delta=True, debounce_by=None):
                raise RuntimeError("enough")
    assert capability.outcome(stream).status == "cancelled"


@in_a_loop
async def test_iter_is_governed_node_by_node():
    capability = PolicyCapability(policy(FINAL))
    model = Model(calls("search"), "Done.")
    async with agent(model, capability).iter("Go.") as run:
        async for _ in run:
            pass
    assert run.result.output == "Done."
    assert capability.outcome(run.run_id).status == "finalized"
    messages, info = model.asked[-1]
    assert not info.function_tools
    assert messages[-1].parts[-1].content == "Answer now."
    assert not any("Answer now." in str(m) for m in run.result.all_messages())


# Structured output.


@in_a_loop
async def test_an_output_tool_survives_the_final_call():
    capability = PolicyCapability(policy(FINAL))
    model = Model(calls("search"), city(name="Bern"))
    result = await agent(model, capability, output_type=City).run("Go.")
    assert result.output == City(name="Bern")
    assert capability.outcome(result).status == "finalized"
    _, info = model.asked[-1]
    assert not info.function_tools
    assert [tool.name for tool in info.output_tools] == ["final_result"]


@in_a_loop
async def test_an_answer_that_does_not_fit_is_made_again_and_counted():
    capability = PolicyCapability(policy(THREE))
    model = Model(city(nonsense=1), city(name="Bern"))
    result = await agent(model, capability, output_type=City).run("Go.")
    assert result.output == City(name="Bern")
    outcome = capability.outcome(result)
    assert (outcome.status, outcome.used.llm_calls) == ("completed", 2)


@pytest.mark.parametrize("stream", [False, True])
@in_a_loop
async def test_an_answer_that_a_validator_sends_back_is_made_again_and_counted(stream):
    capability = PolicyCapability(policy(THREE))
    model = Model("No.", "Yes.")
    made = agent(model, capability)

    @made.output_validator
    def is_yes(ctx: RunContext, text: str) -> str:
        if text.strip() != "Yes.":
            raise ModelRetry("Say yes.")
        return text

    if stream:
        async with made.iter("Go.") as run:
            async for node in run:
                if Agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as pieces:
                        async for _ in pieces:
                            pass
        result = run.result
    else:
        result = await made.run("Go.")
    assert result.output.strip() == "Yes."
    outcome = capability.outcome(result)
    assert (outcome.status, outcome.used.llm_calls) == ("completed", 2)


@in_a_loop
async def test_a_run_without_an_answer_raises_where_no_text_is_taken():
    capability = PolicyCapability(policy(THREE))
    with pytest.raises(PolicyStopped, match="llm_calls") as stopped:
        await agent(Model(calls("search")), capability, output_type=City).run("Go.")
    assert stopped.value.outcome.status == "incomplete"


@in_a_loop
async def test_a_run_without_an_answer_raises_where_that_is_wanted():
    capability = PolicyCapability(policy("limits {\n  llm_calls  1\n}\n"), raises=True)
    with pytest.raises(PolicyStopped, match="llm_calls"):
        await agent(Model(calls("search")), capability).run("Go.")


def test_tools_beside_an_answer_do_not_run():
    capability = PolicyCapability(policy(THREE))
    ran: list[str] = []
    made = Agent(Model([*calls("pay"), *city(name="Bern")]).model, capabilities=[capability], output_type=City)

    @made.tool_plain
    def pay() -> str:
        ran.append("pay")
        return "paid"

    result = made.run_sync("Go.")
    assert (result.output, ran) == (City(name="Bern"), [])
    assert capability.outcome(result).status == "completed"


def test_a_response_that_the_provider_pauses_is_one_call():
    capability = PolicyCapability(policy("limits {\n  llm_calls  1\n}\n"))
    used = RequestUsage(input_tokens=5, output_tokens=5)
    replies = [
        ModelResponse([TextPart("It ")], state="suspended", usage=used),
        ModelResponse([TextPart("is.")], usage=used),
    ]
    model = FunctionModel(lambda messages, info: replies.pop(0))
    result = Agent(model, capabilities=[capability]).run_sync("Go.")
    assert result.output == "It is."
    outcome = capability.outcome(result)
    assert (outcome.status, outcome.used.llm_calls, outcome.used.input_tokens) == ("completed", 1, 10)


# People.

ASK = 'tool "pay"  ask within 10m\n'


def paying(model: Model, capability: PolicyCapability, paid: list[str], **more: object) -> Agent:
    made = Agent(model.model, capabilities=[capability], output_type=[str, DeferredToolRequests], **more)

    @made.tool_plain
    def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    return made


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("granted", [True, False])
@in_a_loop
async def test_a_person_is_asked_by_the_framework_and_the_run_goes_on(granted, restarted):
    paid: list[str] = []
    capability = PolicyCapability(policy(ASK))
    model = Model(calls("pay", to="Ann"), "Done.")
    made = paying(model, capability, paid)
    first = await made.run("Go.")
    asked = first.output.approvals
    assert [each.tool_name for each in asked] == ["pay"]
    assert not paid
    assert capability.outcome(first) is None
    if restarted:
        capability = PolicyCapability(policy(ASK))
        made = paying(model, capability, paid)
    answers = DeferredToolResults(approvals={asked[0].tool_call_id: granted})
    second = await made.run(message_history=first.all_messages(), deferred_tool_results=answers)
    assert second.output == "Done."
    assert paid == (["Ann"] if granted else [])
    outcome = capability.outcome(second)
    assert outcome.status == "completed"
    assert outcome.used.llm_calls == (2 if not restarted or granted else 1)
    if not restarted:
        assert capability.outcome(first) == outcome


@in_a_loop
async def test_a_person_changes_arguments_and_another_says_why_not():
    paid: list[str] = []
    capability = PolicyCapability(policy(ASK))
    model = Model(calls("pay", "pay", to="Ann"), "Done.")
    made = paying(model, capability, paid)
    first = await made.run("Go.")
    one, other = first.output.approvals
    answers = DeferredToolResults(
        approvals={one.tool_call_id: ToolApproved(override_args={"to": "Bob"}), other.tool_call_id: ToolDenied("No!")}
    )
    second = await made.run(message_history=first.all_messages(), deferred_tool_results=answers)
    assert paid == ["Bob"]
    results = [p.content for m in model.asked[-1][0] for p in m.parts if isinstance(p, ToolReturnPart)]
    assert results == ["paid Bob", "No!"]
    assert capability.outcome(second).status == "completed"


@pytest.mark.parametrize("granted", [True, False])
@in_a_loop
async def test_a_handler_of_the_framework_answers_within_the_run(granted):
    paid: list[str] = []

    def handler(ctx, requests):
        return requests.build_results(approvals={each.tool_call_id: granted for each in requests.approvals})

    capability = PolicyCapability(policy(ASK))
    model = Model(calls("pay", to="Ann"), "Done.")
    made = Agent(model.model, capabilities=[HandleDeferredToolCalls(handler), capability])

    @made.tool_plain
    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    result = await made.run("Go.")
    assert paid == (["Ann"] if granted else [])
    assert capability.outcome(result).status == "completed"


@in_a_loop
async def test_a_tool_that_defers_its_result_is_waited_for():
    capability = PolicyCapability(policy(THREE))
    model = Model(calls("order"), "Done.")
    made = Agent(model.model, capabilities=[capability], output_type=[str, DeferredToolRequests])

    @made.tool_plain
    def order() -> str:
        raise CallDeferred

    first = await made.run("Go.")
    (waiting,) = first.output.calls
    results = DeferredToolResults(calls={waiting.tool_call_id: "arrived"})
    second = await made.run(message_history=first.all_messages(), deferred_tool_results=results)
    assert second.output == "Done."
    outcome = capability.outcome(second)
    assert (outcome.status, outcome.used.llm_calls, outcome.used.tool_calls) == ("completed", 2, 1)
