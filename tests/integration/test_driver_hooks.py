"""Hooks around calls and tools: their order, what they may change, what they cannot undo, and how they fail."""

import asyncio

import pytest
from msgspec import structs
from run_fakes import FINALIZE, Model, asks, assert_valid, limits, says

from engine.clients.base import ModelError
from engine.core.messages import Message, ToolSpec
from engine.core.policy import Finalization, Finalize, Limit, Policy
from engine.run.driver import Driver
from engine.run.results import ToolResult
from engine.run.tools import Tool, ToolDefinitionError

LAST = limits(llm_calls=(1, (Finalize(text="Finish."),)))


async def echo(text: str = "") -> str:
    return f"echo {text}"


def run(driver, question="hello"):
    return asyncio.run(driver.run(question))


def test_the_order_of_all_hooks():
    order = []

    def hook(name, asynchronous=False):
        def plain(*given):
            order.append(name)

        async def coroutine(*given):
            await asyncio.sleep(0)
            order.append(name)

        return coroutine if asynchronous else plain

    model = Model(
        lambda request: order.append("wire") or asks("echo"), lambda request: order.append("wire") or says("x")
    )
    run(
        Driver(
            limits(),
            model,
            [echo],
            request_processors=[hook("process 1"), hook("process 2", True)],
            before_model=[hook("before 1", True), hook("before 2")],
            after_model=[hook("after 1"), hook("after 2", True)],
            before_tool=[hook("before tool", True)],
            after_tool=[hook("after tool")],
        )
    )
    call = ["process 1", "process 2", "before 1", "before 2", "wire", "after 1", "after 2"]
    assert order == [*call, "before tool", "after tool", *call]


def test_a_final_call_loses_its_tools_again_after_every_hook():
    seen = []
    spec = ToolSpec("sneaky")

    def processor(request, context):
        return structs.replace(request, tools=(spec,), tool_choice="sneaky", settings={"toolChoice": "x", "keep": 1})

    def restores(request, context):
        seen.append((request.tools, request.tool_choice, request.settings, request.messages[-1].text))
        messages = tuple(m for m in request.messages if m.text != "Finish.")
        return structs.replace(
            request,
            messages=(*messages, Message("user", "never mind")),
            tools=(spec,),
            tool_choice="sneaky",
            settings={"extra_body": {"function_call": "x", "keep": 2}},
            max_output=10**9,
        )

    model = Model(says("ok"))
    result = run(Driver(LAST, model, [echo], request_processors=[processor], before_model=[restores, restores]))
    assert result.status == "finalized"
    assert seen[0] == ((), "auto", {"keep": 1}, "Finish.")
    assert seen[1] == ((), "auto", {"extra_body": {"keep": 2}}, "Finish.")
    request = model.requests[0]
    assert (request.tools, request.tool_choice, request.settings) == ((), "auto", {"extra_body": {"keep": 2}})
    assert [m.text for m in request.messages].count("Finish.") == 1
    assert request.messages[-1].text == "Finish."
    assert [m.text for m in result.messages] == ["hello", "ok"]


def test_an_ordinary_call_may_be_changed_freely():
    def shorter(request, context):
        assert (context.call, context.attempt, context.client, context.final) == ("1", 1, "main", False)
        return structs.replace(request, messages=request.messages[-1:], tools=())

    model = Model(says("ok"))
    run(Driver(limits(), model, [echo], system="s", before_model=[shorter]))
    assert [m.text for m in model.requests[0].messages] == ["hello"]
    assert model.requests[0].tools == ()


def test_a_genuine_message_with_the_words_of_the_instruction_stays():
    def drops_injected(request, context):
        return structs.replace(request, messages=request.messages[:-1])

    model = Model(says("ok"))
    run(Driver(LAST, model, before_model=[drops_injected]), "Finish.")
    assert [m.text for m in model.requests[0].messages] == ["Finish."]


def test_hooks_run_for_every_attempt():
    attempts = []
    policy = Policy(
        name="t",
        limits=(Limit(resource="llm_calls", max=1, then=FINALIZE),),
        finalization=Finalization(empty_retries=1),
    )

    def restore(request, context):
        attempts.append((context.attempt, context.final, context.why))
        return structs.replace(request, tools=(ToolSpec("sneaky"),))

    model = Model(says(""), says("ok"))
    result = run(Driver(policy, model, before_model=[restore]))
    assert result.status == "finalized"
    assert attempts == [(1, True, "llm_calls"), (2, True, "llm_calls")]
    assert [r.tools for r in model.requests] == [(), ()]


def test_a_hook_may_answer_in_the_providers_place_and_the_call_has_been_used():
    seen = []
    driver = Driver(
        limits(llm_calls=(2, FINALIZE)),
        Model(),
        [echo],
        before_model=[lambda request, context: says("mine", usage=None) if context.final else asks("echo", usage=None)],
        after_model=[lambda reply, context: seen.append(reply)],
    )
    result = run(driver)
    assert (result.status, result.text) == ("finalized", "mine")
    assert (result.used.llm_calls, result.used.tool_calls, result.used.tokens) == (2, 1, 0)
    assert len(seen) == 2


def test_a_hooks_answer_with_tools_in_the_final_call_is_disobedience():
    result = run(Driver(LAST, Model(), [echo], before_model=[lambda request, context: asks("echo")]))
    assert (result.status, result.reason) == ("failed", "finalization_disobeyed")
    assert_valid(result.messages)


def test_an_after_model_hook_may_replace_the_reply():
    model = Model(says("secret"))
    result = run(Driver(limits(), model, after_model=[lambda reply, context: says(reply.message.text.upper())]))
    assert result.text == "SECRET"


def boom(*given):
    raise RuntimeError("boom")


async def late_boom(*given):
    await asyncio.sleep(0)
    raise RuntimeError("boom")


def nonsense(*given):
    return 5


@pytest.mark.parametrize("where", ["request_processors", "before_model", "after_model"])
@pytest.mark.parametrize("policy", [limits(), LAST])
@pytest.mark.parametrize(("hook", "said"), [(boom, "boom"), (late_boom, "boom"), (nonsense, "of type `int`")])
def test_a_model_hook_that_fails_fails_the_call(where, policy, hook, said):
    result = run(Driver(policy, Model(then=says("ok")), [echo], **{where: [hook]}))
    assert (result.status, result.reason) == ("failed", "llm_failure")
    assert result.error.startswith("host: ")
    assert said in result.error
    assert hook.__name__ in result.error
    assert result.used.llm_calls == 1
    assert_valid(result.messages)


@pytest.mark.parametrize("where", ["before_tool", "after_tool"])
@pytest.mark.parametrize("hook", [boom, late_boom, nonsense])
def test_a_tool_hook_that_fails_fails_the_execution_and_the_run_goes_on(where, hook):
    model = Model(asks("echo"), says("done"))
    result = run(Driver(limits(), model, [echo], **{where: [hook]}))
    assert (result.status, result.text) == ("completed", "done")
    assert result.messages[2].is_error
    assert hook.__name__ in result.messages[2].text


def test_a_hook_failure_in_the_limit_reaching_round_still_leads_to_the_final_call():
    policy = limits(tool_iterations=(1, FINALIZE))
    result = run(Driver(policy, Model(asks("echo"), says("done")), [echo], after_tool=[boom]))
    assert (result.status, result.reason) == ("finalized", "tool_iterations")


def test_tool_hooks_may_change_arguments_and_results():
    seen = []

    def before(invocation):
        seen.append((invocation.name, dict(invocation.arguments), invocation.context.id))
        return {"text": invocation.arguments["text"] + "!"}

    async def after(invocation, result):
        seen.append((dict(invocation.arguments), result))
        return ToolResult(result.text.upper())

    model = Model(asks(("echo", '{"text": "a"}')), says("done"))
    result = run(Driver(limits(), model, [echo], before_tool=[before], after_tool=[after]))
    assert result.messages[2].text == "ECHO A!"
    assert seen == [("echo", {"text": "a"}, "1.0"), ({"text": "a!"}, ToolResult("echo a!"))]


def test_arguments_from_a_hook_are_validated_again():
    model = Model(asks("echo"), says("done"))
    result = run(Driver(limits(), model, [echo], before_tool=[lambda invocation: {"text": 5}]))
    assert result.messages[2].is_error
    assert "valid string" in result.messages[2].text


def test_a_before_tool_hook_may_answer_in_the_tools_place():
    ran = []

    async def real():
        ran.append(1)

    hook = [lambda invocation: ToolResult("cached")]
    result = run(Driver(limits(), Model(asks("real"), says("done")), [real], before_tool=hook))
    assert (result.messages[2].text, ran, result.used.tool_calls) == ("cached", [], 1)


def test_a_hook_that_empties_the_request_fails_the_call():
    for policy in (limits(), LAST):
        hook = [lambda request, context: structs.replace(request, messages=())]
        result = run(Driver(policy, Model(), before_model=hook))
        assert result.error == "host: the request has no messages"
        assert result.used.llm_calls == 1


def test_a_hook_may_raise_a_model_error():
    def refuse(request, context):
        raise ModelError("content_filter", "not allowed here")

    result = run(Driver(limits(), Model(), before_model=[refuse]))
    assert result.status == "failed"
    assert "not allowed here" in result.error


def test_another_agent_goes_on_with_the_conversation():
    ran = []

    def to_billing(why: str = "") -> None:
        """Let the agent for bills go on."""
        ran.append(why)

    def other_agent(request, context):
        handed_over = any(m.role == "tool" and "goes on" in m.text for m in request.messages)
        system = Message("system", "You are about bills." if handed_over else "You are the front desk.")
        return structs.replace(request, messages=(system, *request.messages))

    model = Model(asks("to_billing", "echo"), asks(("to_billing", "{"), "echo"), says("Paid."))
    tools = [Tool(to_billing, handoff=True), echo]
    driver = Driver(limits(tool_iterations=2), model, tools, request_processors=[other_agent])
    result = run(driver)
    assert (result.status, result.text, ran) == ("completed", "Paid.", [])
    assert [request.messages[0].text for request in model.requests] == ["You are the front desk."] + [
        "You are about bills."
    ] * 2
    told = [m.text for m in result.messages if m.role == "tool"]
    assert told[0] == "`to_billing` goes on with this conversation."
    assert result.used.llm_calls == 3
    assert_valid(result.messages)


def test_a_tool_is_executed_elsewhere_or_hands_over_not_both():
    with pytest.raises(ToolDefinitionError, match="both `external` and a `handoff`"):
        Tool(echo, external=True, handoff=True)
