"""The gateway before a rehearsed provider, with OpenAI's own SDK."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import openai
import pytest
from gateway_parts import QUESTION, TOOLS, governed, limits
from openai import AsyncOpenAI


def sdk(gateway: Any, **more: Any) -> AsyncOpenAI:
    return AsyncOpenAI(**{"base_url": f"{gateway.url}/v1", "api_key": "sk-test-key", "max_retries": 0} | more)


async def ask(client: AsyncOpenAI, messages: Any = (QUESTION,), **more: Any) -> Any:
    return await client.chat.completions.create(model="m", messages=list(messages), tools=TOOLS, **more)


def went(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


SAYS = {"text": "It is 42.", "times": "always"}


def test_a_request_that_nothing_stands_against_goes_through_untouched():
    async def main():
        async with governed("", SAYS) as (gateway, server), sdk(gateway) as client:
            reply = await ask(
                client, temperature=0.5, extra_body={"metadata": {"new": "1"}}, extra_headers={"x-a": "b"}
            )
            assert reply.choices[0].message.content == "It is 42."
            (entry,) = server.ledger
            assert entry.body["metadata"] == {"new": "1"}
            assert entry.body["temperature"] == 0.5
            assert entry.headers["x-a"] == "b"
            assert "x-policy-run" not in entry.headers

    went(main())


def test_a_refused_call_is_cut_and_put_back_with_its_result():
    async def main():
        batch = {"calls": [{"tool": "pay"}, {"tool": "search"}], "text": "Let me see."}
        async with governed('tool "pay"  deny "Not here."\n', batch, SAYS) as (gateway, server), sdk(gateway) as client:
            message = (await ask(client)).choices[0].message
            assert [call.function.name for call in message.tool_calls] == ["search"]
            assert message.content == "Let me see."
            done = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
            await ask(client, [QUESTION, message, done])
            sent = server.ledger[1].body["messages"]
            assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == ["pay", "search"]
            assert [m["content"] for m in sent[2:]] == ["Not here.", "found"]

    went(main())


@pytest.mark.parametrize("stream", [False, True])
def test_where_every_call_is_cut_the_next_call_is_made_in_the_same_response(stream: bool):
    async def main():
        first = {"tool": "pay", "text": "I pay." if stream else None}
        async with governed('tool "pay"  deny\n', first, SAYS) as (gateway, server), sdk(gateway) as client:
            if stream:
                pieces = [c async for c in await ask(client, stream=True)]
                said = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
                assert said == "I pay.\n\nIt is 42."
                assert not any(c.choices[0].delta.tool_calls for c in pieces if c.choices)
                assert [c.choices[0].finish_reason for c in pieces if c.choices][-1] == "stop"
            else:
                assert (await ask(client)).choices[0].message.content == "It is 42."
            assert len(server.ledger) == 2
            assert not server.ledger.problems

    went(main())


def test_text_goes_through_before_the_answer_is_complete():
    async def main():
        slow = {"text": "one two three four five six", "piece": 4, "event_delay_ms": 150}
        async with governed("", slow) as (gateway, _), sdk(gateway) as client:
            began = time.monotonic()
            seen = [time.monotonic() - began async for c in await ask(client, stream=True) if c.choices]
            assert seen[0] < seen[-1] / 2

    went(main())


def test_tool_calls_are_held_until_they_are_judged_and_arrive_whole():
    async def main():
        batch = {"calls": [{"tool": "search", "args": {"q": "a"}}, {"tool": "pay"}], "text": "So."}
        rules = limits("tool_calls  1")
        async with governed(rules, batch, SAYS) as (gateway, _), sdk(gateway) as client:
            asked = {"model": "m", "messages": [QUESTION], "tools": TOOLS}
            async with client.chat.completions.stream(**asked) as stream:
                async for _ in stream:
                    pass
                message = (await stream.get_final_completion()).choices[0].message
            assert [(c.function.name, c.function.arguments) for c in message.tool_calls] == [("search", '{"q":"a"}')]

    went(main())


def test_a_run_that_is_stopped_is_told_as_a_reply_or_as_an_error():
    async def main():
        rules = limits("llm_calls  1")
        again = {"tool": "search", "times": "always"}
        async with governed(rules, again) as (gateway, server), sdk(gateway) as client:
            first = await ask(client)
            message = first.choices[0].message
            done = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=[QUESTION, message, done])
            said = raw.parse().choices[0].message.content
            assert said == "[Stopped: the limit on llm_calls is reached (1 of 1)]"
            assert raw.headers["x-policy-outcome"] == "incomplete llm_calls"
            assert len(server.ledger) == 1
        async with governed(rules, again, refuse="error") as (gateway, server), sdk(gateway, max_retries=2) as client:
            message = (await ask(client)).choices[0].message
            done = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
            with pytest.raises(openai.RateLimitError, match="the limit on llm_calls") as caught:
                await ask(client, [QUESTION, message, done])
            assert caught.value.code == "llm_calls"
            assert len(server.ledger) == 1

    went(main())


def test_failures_go_through_as_the_provider_tells_them_and_are_not_tried_again():
    async def main():
        fails = {"fail": "auth", "times": "always"}
        async with governed("", fails) as (gateway, server), sdk(gateway, max_retries=2) as client:
            with pytest.raises(openai.AuthenticationError):
                await ask(client)
            assert len(server.ledger) == 1

    went(main())


@pytest.mark.parametrize(
    "broken", ["close", "reset", "cut", "half_event", "invalid_json", "no_content", "empty", "html", "no_end"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_upstream_is_tried_again_before_the_first_byte(broken: str, stream: bool):
    async def main():
        rules = "on llm_failure *  retry 2 every 1ms..2ms\n"
        first = {"text": "Half", "broken": broken} | ({"after": 0} if stream else {})
        async with governed(rules, first, SAYS) as (gateway, server), sdk(gateway) as client:
            reply = await ask(client, stream=stream)
            if stream:
                said = "".join([c.choices[0].delta.content or "" async for c in reply if c.choices])
            else:
                said = reply.choices[0].message.content
            assert said in ("It is 42.", "Half")
            assert len(server.ledger) == (2 if said == "It is 42." else 1)

    went(main())


def test_a_stream_that_breaks_behind_its_first_text_ends_with_an_error_and_no_further_attempt():
    async def main():
        rules = "on llm_failure *  retry 2 every 1ms..2ms\n"
        cut = {"text": "one two three four five six", "piece": 4, "broken": "cut", "after": 4}
        async with governed(rules, cut, SAYS) as (gateway, server), sdk(gateway) as client:
            stream = await ask(client, stream=True)
            assert (await anext(stream)).choices
            with pytest.raises(openai.APIError, match=r"broke|ended before"):
                _ = [chunk async for chunk in stream]
            assert len(server.ledger) == 1

    went(main())


def test_a_client_that_leaves_and_comes_back_makes_a_further_attempt_of_the_same_call():
    async def main():
        rules = limits("llm_calls  1")
        slow = {"text": "Too late.", "delay_ms": 20_000}
        async with governed(rules, slow, SAYS) as (gateway, _server), sdk(gateway) as client:
            headers = {"x-policy-run": "one"}
            with pytest.raises(openai.APITimeoutError):
                await ask(client, timeout=0.3, extra_headers=headers)
            reply = await ask(client, extra_headers=headers)
            assert reply.choices[0].message.content == "It is 42."
            used = (await told(gateway, "one"))["used"]
            assert (used["llm_calls"], used["llm_attempts"]) == (1, 2)

    went(main())


async def told(gateway: Any, run: str, key: str = "sk-test-key") -> Any:
    async with httpx.AsyncClient() as http:
        came = await http.get(f"{gateway.url}/policy/runs/{run}", headers={"authorization": f"Bearer {key}"})
        return came.json() if came.status_code == 200 else None


def test_a_named_run_belongs_to_the_key_that_has_begun_it():
    async def main():
        async with governed("", SAYS) as (gateway, _), sdk(gateway) as mine, sdk(gateway, api_key="sk-other") as theirs:
            await ask(mine, extra_headers={"x-policy-run": "mine"})
            with pytest.raises(openai.PermissionDeniedError, match="another key"):
                await ask(theirs, extra_headers={"x-policy-run": "mine"})
            assert await told(gateway, "mine") is not None
            assert await told(gateway, "mine", "sk-other") is None

    went(main())


def tool_round(n: int) -> list[Any]:
    call = {"id": f"call_{n}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": f"call_{n}", "content": "x"}]


def test_a_transcript_that_nobody_knows_counts_what_it_shows():
    async def main():
        rules = limits("llm_calls  4")
        async with governed(rules, SAYS) as (gateway, server), sdk(gateway) as client:
            history = [QUESTION, *tool_round(1), *tool_round(2), *tool_round(3)]
            assert (await ask(client, history)).choices[0].message.content == "It is 42."
            more = [*history, *tool_round(4)]
            other = [{"role": "user", "content": "And this?"}, *more[1:]]
            assert "Stopped" in (await ask(client, other)).choices[0].message.content
            assert len(server.ledger) == 1

    went(main())


def test_cut_and_forked_histories_never_lower_a_counter():
    async def main():
        rules = limits("llm_calls  3")
        async with governed(rules, {"tool": "search", "times": "always"}) as (gateway, server), sdk(gateway) as client:
            messages: list[Any] = [QUESTION]
            for _ in range(2):
                message = (await ask(client, messages)).choices[0].message
                done = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
                messages += [message.model_dump(exclude_none=True), done]
            forked, cut = messages[:3], [messages[0], *messages[3:]]
            assert (await ask(client, forked)).choices[0].message.tool_calls
            for history in (messages, forked, cut):
                assert "Stopped" in (await ask(client, history)).choices[0].message.content
            assert len(server.ledger) == 3

    went(main())


def test_the_same_question_begins_a_new_run():
    async def main():
        rules = limits("llm_calls  1")
        async with governed(rules, SAYS) as (gateway, server), sdk(gateway) as client:
            for _ in range(3):
                assert (await ask(client)).choices[0].message.content == "It is 42."
            assert len(server.ledger) == 3

    went(main())


@pytest.mark.parametrize("id", ["", "same"])
@pytest.mark.parametrize("stream", [False, True])
def test_calls_without_ids_of_their_own_are_told_apart(id: str, stream: bool):
    async def main():
        batch = {"calls": [{"tool": tool, "id": id} for tool in ("search", "pay", "search")]}
        async with governed('tool "pay"  deny\n', batch, SAYS) as (gateway, server), sdk(gateway) as client:
            asked: dict[str, Any] = {"model": "m", "messages": [QUESTION], "tools": TOOLS}
            if stream:
                async with client.chat.completions.stream(**asked) as chunks:
                    message = (await chunks.get_final_completion()).choices[0].message
            else:
                message = (await ask(client)).choices[0].message
            calls = message.tool_calls
            assert [call.function.name for call in calls] == ["search", "search"]
            assert len({call.id for call in calls} | {""}) == 3
            done = [{"role": "tool", "tool_call_id": call.id, "content": "found"} for call in calls]
            history = [QUESTION, message.model_dump(exclude_none=True, exclude={"parsed"}), *done]
            assert (await ask(client, history)).choices[0].message.content == "It is 42."
            assert not server.ledger.problems

    went(main())


def test_a_limit_that_asks_a_person_does_not_grow():
    async def main():
        rules = limits("tool_iterations  1  then ask up to 2")
        async with governed(rules, {"tool": "search", "times": "always"}) as (gateway, _), sdk(gateway) as client:
            message = (await ask(client)).choices[0].message
            done = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found"}
            said = (await ask(client, [QUESTION, message, done])).choices[0].message.content
            assert said == "[Stopped: the limit on tool_iterations is reached (1 of 1)]"

    went(main())
