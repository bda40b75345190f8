"""Cases about the request of a final call: what hooks cannot undo, what is sent, and what is not stored."""

from __future__ import annotations

from typing import Any

from conformance_cases import Case, differs, reproduces
from conformance_world import asks, default_instruction, limit, model, policy_of, says
from msgspec import structs

from engine.core.messages import Message, Request
from engine.core.policy import Finalization, Policy
from engine.run.driver import Driver
from engine.run.hooks import CallContext, without_tool_control


def look() -> str:
    """Look something up."""
    return "found"


def said(messages: tuple[Message, ...]) -> list[str]:
    return [f"{m.role}:{m.text}" for m in messages]


@differs("llm-final-not-in-summary-fork")
async def test_a_hook_cannot_take_the_instruction_away_by_rewriting_it(case: Case) -> None:
    def rewrite(request: Request, context: CallContext) -> Request:
        changed = structs.replace(request.messages[-1], text="<rewritten>")
        return structs.replace(request, messages=(*request.messages[:-1], changed))

    client = model(says("A1"))
    result = await Driver(policy_of(case["config"]), client, [look], before_model=[rewrite]).run("Q1")
    assert said(client.requests[0].messages) == ["user:Q1", "user:<rewritten>", "user:LLM-TEXT"]
    assert case["expect"]["model_saw"][1] == "user:<rewritten instruction + part>"
    assert said(result.messages) == case["expect"]["summary_snapshot"]


@reproduces("llm-final-strip-keeps-identical-user-msg")
async def test_a_question_in_the_words_of_the_instruction_stays(case: Case) -> None:
    words = case["script"][0]["text"]
    policy = Policy(name="case", limits=(limit("llm_calls", 1, words),))
    client = model(says("A1"))
    result = await Driver(policy, client).run(words)
    assert len(client.requests[0].messages) == case["expect"]["original_len"]
    assert said(result.messages[:-1]) == case["expect"]["stripped"]


@reproduces("llm-final-strip-when-hook-removed-it")
async def test_a_hook_that_drops_the_last_message_takes_no_genuine_one_away(case: Case) -> None:
    words = case["script"][0]["text"]
    kept = case["script"][1]["n"]

    def truncate(request: Request, context: CallContext) -> Request:
        return structs.replace(request, messages=request.messages[:kept])

    policy = Policy(name="case", limits=(limit("llm_calls", 1, words),))
    client = model(says("A1"))
    result = await Driver(policy, client, before_model=[truncate]).run(words)
    assert said(result.messages[:-1]) == case["expect"]["stripped"]
    assert client.requests[0].messages[-1].text == words


@reproduces("step-final-ends-invocation")
async def test_the_last_call_ends_the_run(case: Case) -> None:
    client = model(says())
    result = await Driver(policy_of(case["config"]), client, [look]).run("test")
    (call,) = case["expect"]["calls"]
    (request,) = client.requests
    default = default_instruction("llm_calls")
    assert said(request.messages) == [text.replace("<default>", default) for text in call["messages"]]
    assert bool(request.tools) == call["tools_offered"]
    assert (result.status, result.error) == ("finalized", case["expect"]["error"] or "")


@reproduces("llm-final-precedence-on-same-call")
async def test_two_reasons_give_one_instruction(case: Case) -> None:
    # A round of ours is asked for by a call, so there is one call more.
    config = {**case["config"], "max_llm_calls": case["config"]["max_llm_calls"] + 1}
    client = model(asks("look"), says())
    result = await Driver(policy_of(config), client, [look]).run("test")
    (call,) = case["expect"]["calls"]
    control = [m.text for m in client.requests[-1].messages if m.role == "user" and m.text != "test"]
    assert control == [call["instruction"]] * call["control_messages"]
    assert result.reason == "llm_calls"


@reproduces("retry-callbacks-stay-tool-free")
async def test_a_further_attempt_of_the_final_call_stays_without_tools(case: Case) -> None:
    extra = case["config"]["request"]["extra"]
    (name,) = case["config"]["request"]["tools"]
    seen_final: list[bool] = []

    def restore(request: Request, context: CallContext) -> Request:
        seen_final.append(context.final)
        return structs.replace(request, tools=offered, tool_choice="required", settings=dict(extra))

    async def tool_a() -> str:
        return "found"

    policy = policy_of(
        {**case["config"], "max_tool_iterations": 1}, finalization=Finalization(empty_retries=1).model_dump()
    )
    client = model(asks(name), says(""), says())
    driver = Driver(policy, client, [tool_a], settings=extra, before_model=[restore])
    offered = driver._host.declarations
    result = await driver.run("test")
    expect = case["expect"]
    assert seen_final == [False, True, True]
    for request in client.requests[1:]:
        assert bool(request.tools) == expect["tools_offered"]
        assert (request.tool_choice != "auto" or "tool_choice" in request.settings) == expect["tool_choice_sent"]
        assert request.settings == expect["kept_extra"]
        assert f"user:{request.messages[-1].text}" == expect["last_message"].replace("<instruction>", "TOOL-TEXT")
    assert (result.status, result.error) == ("finalized", expect["error"] or "")
    assert client.requests[0].tools == offered


@reproduces("scrub-marker")
async def test_hooks_are_told_that_tools_are_off(case: Case) -> None:
    told: list[bool | None] = []

    def listen(request: Request, context: CallContext) -> None:
        told.append(context.final)

    # Before the limit is reached, and at it.
    driver = Driver(
        Policy(name="case", limits=(limit("llm_calls", 2, ""),)),
        model(asks("look"), says()),
        [look],
        before_model=[listen],
    )
    await driver.run("test")
    before, _, after = case["expect"]["results"]
    assert told == [before, after]


@reproduces("scrub-delete-fields")
def test_every_spelling_of_a_tool_setting_is_removed(case: Case) -> None:
    given = dict.fromkeys([*case["config"]["extra"], *case["expect"]["also_recognised"]], 1)
    assert list(without_tool_control(given)) == case["expect"]["remaining"]


@differs("scrub-object")
async def test_settings_are_searched_at_any_depth_and_what_is_no_object_stays(case: Case) -> None:
    objects: list[Any] = [
        dict.fromkeys(case["script"][0]["value"].strip("{}").split(","), 1),
        *(op["value"] for op in case["script"][1:]),
    ]
    client = model(says())
    settings = {f"extra_{i}": value for i, value in enumerate(objects)}
    result = await Driver(Policy(name="case", limits=(limit("llm_calls", 1, ""),)), client, settings=settings).run(
        "test"
    )
    sent = client.requests[0].settings
    assert list(sent["extra_0"]) == case["expect"]["results"][0]
    assert [sent["extra_1"], sent["extra_2"]] == ["not-an-object", None]
    assert case["expect"]["results"][1:] == ["not_ok", "not_ok"]
    assert result.status == "finalized"


@differs("run-instruction-not-persisted")
async def test_the_instruction_is_not_stored_and_the_outcome_says_that_the_answer_was_forced(case: Case) -> None:
    client = model(says("assistant answer"))
    result = await Driver(policy_of(case["config"]), client).run("user question")
    assert [m.text for m in result.messages] == case["expect"]["session"]
    assert client.requests[0].messages[-1].text == "LLM-TEXT"
    assert case["expect"]["answer_has_limit_marker"] is False
    assert (result.status, result.reason) == ("finalized", "llm_calls")
