"""The gateway before a rehearsed provider, with Anthropic's own SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from gateway_parts import ANTHROPIC_TOOLS, QUESTION, governed, limits

SAYS = {"text": "It is 42.", "times": "always"}


def sdk(gateway: Any, **more: Any) -> AsyncAnthropic:
    return AsyncAnthropic(**{"base_url": gateway.url, "api_key": "sk-ant-test", "max_retries": 0} | more)


async def ask(client: AsyncAnthropic, messages: Any = (QUESTION,), **more: Any) -> Any:
    asked = {"model": "m", "max_tokens": 100, "messages": list(messages), "tools": ANTHROPIC_TOOLS} | more
    return await client.messages.create(**asked)


async def streamed(client: AsyncAnthropic, messages: Any = (QUESTION,)) -> Any:
    asked = {"model": "m", "max_tokens": 100, "messages": list(messages), "tools": ANTHROPIC_TOOLS}
    async with client.messages.stream(**asked) as stream:
        async for _ in stream:
            pass
        return await stream.get_final_message()


def went(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def results(message: Any, text: str = "found") -> dict[str, Any]:
    ids = [block.id for block in message.content if block.type == "tool_use"]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text} for id in ids]}


@pytest.mark.parametrize("call", [ask, streamed])
def test_a_refused_call_is_cut_and_put_back_with_its_result(call: Any):
    async def main():
        batch = {"calls": [{"tool": "pay"}, {"tool": "search", "args": {"q": "a"}}], "text": "Let me see."}
        async with governed('tool "pay"  deny "Not here."\n', batch, SAYS) as (gateway, server), sdk(gateway) as client:
            message = await call(client)
            assert [block.type for block in message.content] == ["text", "tool_use"]
            assert (message.content[1].name, message.content[1].input) == ("search", {"q": "a"})
            assert message.stop_reason == "tool_use"
            history = [QUESTION, {"role": "assistant", "content": message.content}, results(message)]
            again = await call(client, history)
            assert again.content[0].text == "It is 42."
            sent = server.ledger[1].body["messages"]
            assert [b.get("name") for b in sent[1]["content"]] == [None, "pay", "search"]
            assert [b["content"] for b in sent[2]["content"]] == ["Not here.", "found"]
            assert not server.ledger.problems

    went(main())


@pytest.mark.parametrize("call", [ask, streamed])
def test_where_every_call_is_cut_the_next_call_is_made_in_the_same_response(call: Any):
    async def main():
        first = {"tool": "pay", "text": "I pay."}
        async with governed('tool "pay"  deny\n', first, SAYS) as (gateway, server), sdk(gateway) as client:
            message = await call(client)
            assert message.content[-1].text == "It is 42."
            assert message.stop_reason == "end_turn"
            assert all(block.type == "text" for block in message.content)
            assert len(server.ledger) == 2
            assert not server.ledger.problems

    went(main())


@pytest.mark.parametrize("call", [ask, streamed])
def test_the_final_call_forbids_tools_where_the_history_has_some(call: Any):
    async def main():
        rules = limits('llm_calls  2  then finalize "Answer now."')
        async with governed(rules, {"tool": "search"}, SAYS) as (gateway, server), sdk(gateway) as client:
            message = await call(client)
            history = [QUESTION, {"role": "assistant", "content": message.content}, results(message)]
            assert (await call(client, history)).content[0].text == "It is 42."
            final = server.ledger[1]
            assert not final.offered
            assert final.body["messages"][-1]["content"][-1] == {"type": "text", "text": "Answer now."}
            assert not server.ledger.problems

    went(main())


@pytest.mark.parametrize("call", [ask, streamed])
def test_a_disobedient_final_call_is_answered_without_its_calls(call: Any):
    async def main():
        rules = limits("llm_calls  1  then finalize")
        stubborn = {"tool": "search", "text": "One more.", "times": "always"}
        async with governed(rules, stubborn) as (gateway, _), sdk(gateway) as client:
            message = await call(client)
            assert all(block.type == "text" for block in message.content)
            assert "Stopped" in "".join(block.text for block in message.content)
            assert message.stop_reason == "end_turn"

    went(main())


def test_failed_tools_are_seen_by_their_flag():
    async def main():
        rules = 'breaker "search" {\n  trip   failures 1\n  reset  never\n}\n'
        async with governed(rules, {"tool": "search", "times": 2}, SAYS) as (gateway, server), sdk(gateway) as client:
            message = await ask(client)
            failed = results(message, "it is down")
            failed["content"][0]["is_error"] = True
            reply = await ask(client, [QUESTION, {"role": "assistant", "content": message.content}, failed])
            assert reply.content[0].text == "It is 42."
            assert len(server.ledger) == 3

    went(main())


@pytest.mark.parametrize(
    "broken", ["close", "reset", "cut", "half_event", "invalid_json", "no_content", "empty", "html", "no_end"]
)
@pytest.mark.parametrize("call", [ask, streamed])
def test_a_broken_upstream_is_tried_again_before_the_first_byte(broken: str, call: Any):
    async def main():
        rules = "on llm_failure *  retry 2 every 1ms..2ms\n"
        first = {"text": "Half", "broken": broken} | ({"after": 0} if call is streamed else {})
        async with governed(rules, first, SAYS) as (gateway, server), sdk(gateway) as client:
            said = (await call(client)).content[0].text
            assert said in ("It is 42.", "Half")
            assert len(server.ledger) == (2 if said == "It is 42." else 1)

    went(main())


def test_a_stream_that_breaks_behind_its_first_text_ends_with_an_error():
    async def main():
        rules = "on llm_failure *  retry 2 every 1ms..2ms\n"
        cut = {"text": "one two three four five six", "piece": 4, "broken": "cut", "after": 5}
        async with governed(rules, cut, SAYS) as (gateway, server), sdk(gateway) as client:
            with pytest.raises(anthropic.APIStatusError, match=r"broke|ended before"):
                await streamed(client)
            assert len(server.ledger) == 1

    went(main())


def test_a_refusal_can_be_an_error_of_the_provider():
    async def main():
        rules = limits("llm_calls  1")
        async with governed(rules, {"tool": "search", "times": "always"}, refuse="error") as (gateway, server):
            async with sdk(gateway, max_retries=2) as client:
                message = await ask(client)
                history = [QUESTION, {"role": "assistant", "content": message.content}, results(message)]
                with pytest.raises(anthropic.RateLimitError, match="the limit on llm_calls"):
                    await ask(client, history)
            assert len(server.ledger) == 1

    went(main())


def test_a_run_is_known_again_where_only_marks_for_caches_have_moved():
    async def main():
        rules = limits("llm_calls  2")
        async with governed(rules, {"tool": "search", "times": "always"}) as (gateway, _), sdk(gateway) as client:
            message = await ask(client)
            marked = {"type": "text", "text": QUESTION["content"], "cache_control": {"type": "ephemeral"}}
            history: list[Any] = [{"role": "user", "content": [marked]}]
            history += [{"role": "assistant", "content": message.content}, results(message)]
            second = await ask(client, history, system="It is noon.")
            history += [{"role": "assistant", "content": second.content}, results(second)]
            assert "Stopped" in (await ask(client, history, system="It is one.")).content[0].text

    went(main())
