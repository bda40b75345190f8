"""The driver over real HTTP on loopback, in both wire formats: what the server saw is what counts."""

import asyncio
import time

import pytest
from run_fakes import FINALIZE, assert_valid, limits

from engine.clients import from_spec
from engine.core.policy import Limit, Policy
from engine.rehearsal import Rehearsal, Script, ScriptedCall, ScriptedReply, ScriptedUsage, When
from engine.run.driver import Driver
from engine.run.streaming import TextDelta


async def search(q: str) -> str:
    return f"found {q}"


def both(test):
    return pytest.mark.parametrize("wire", ["openai", "anthropic"])(
        pytest.mark.parametrize("stream", [False, True])(test)
    )


def play(wire, stream, policy, *replies, tools=(search,), **options):
    async def main():
        async with Rehearsal(Script(tuple(replies))) as server:
            base = f"{server.url}/v1" if wire == "openai" else server.url
            client = from_spec(f"{wire}:rehearsed", base_url=base)
            driver = Driver(policy, client, tools, **options)
            handle = driver.start("What is it?", stream=stream)
            events = [event async for event in handle] if stream else []
            result = await handle
            await driver.aclose()
            return result, list(server.ledger), events

    return asyncio.run(main())


SEARCH = ScriptedReply(tool="search", args={"q": "page {n}"}, times="always")
ANSWER = ScriptedReply(text="From what I have: 42.", when=When(tools=False), times="always")


@both
def test_a_model_that_would_search_for_ever_answers_inside_its_budget(wire, stream):
    result, seen, events = play(wire, stream, limits(llm_calls=(4, FINALIZE)), ANSWER, SEARCH, tool_choice="required")
    assert (result.status, result.text) == ("finalized", "From what I have: 42.")
    assert [bool(entry.offered) for entry in seen] == [True, True, True, False]
    assert result.used.llm_calls == len(seen) == 4
    assert_valid(result.messages)
    if stream:
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == result.text


@both
def test_usage_is_the_providers(wire, stream):
    usage = ScriptedUsage(input=100, output=7, cumulative=True)
    result, _, _ = play(wire, stream, limits(), ScriptedReply(text="ok", usage=usage))
    assert (result.used.input_tokens, result.used.output_tokens) == (100, 7)
    result, _, _ = play(wire, stream, limits(tokens=1000), ScriptedReply(text="ok" * 8, usage="none"))
    assert result.status == "completed"
    assert result.used.output_tokens == 4


@both
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ScriptedReply(fail="rate_limit", retry_after=1), "rate_limit"),
        (ScriptedReply(fail="overloaded"), "overloaded"),
        (ScriptedReply(fail="context_exceeded"), "context_exceeded"),
        (ScriptedReply(fail="auth"), "auth"),
        (ScriptedReply(status=500), "provider"),
        (ScriptedReply(broken="close"), "network"),
        (ScriptedReply(text="x" * 100, broken="invalid_json"), "provider"),
    ],
)
def test_failures_end_the_run_with_their_reason(wire, stream, reply, reason):
    result, seen, _ = play(wire, stream, limits(), reply)
    assert (result.status, result.reason) == ("failed", "llm_failure")
    assert result.error.startswith(f"{reason}: "), result.error
    assert len(seen) == 1
    assert_valid(result.messages)


@both
def test_a_server_that_hangs_is_cut_at_the_deadline(wire, stream):
    policy = Policy(name="t", limits=(Limit(resource="wall", max=200),))
    began = time.monotonic()
    result, _, _ = play(wire, stream, policy, ScriptedReply(broken="hang"))
    assert (result.status, result.reason) == ("incomplete", "wall")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("wire", "after"), [("openai", 3), ("anthropic", 5)])
def test_a_cut_stream_keeps_what_was_said(wire, after):
    reply = ScriptedReply(text="one two three four five six", broken="cut", after=after)
    result, _, events = play(wire, True, limits(), reply)
    shown = "".join(e.text for e in events if isinstance(e, TextDelta))
    assert result.status == "failed"
    assert shown
    assert (result.text, result.partial) == (shown, True)


@both
def test_ids_a_server_repeats_or_leaves_out(wire, stream):
    calls = (ScriptedCall("search", {"q": "a"}, id="x"), ScriptedCall("search", {"q": "b"}, id="x"))
    result, seen, _ = play(wire, stream, limits(), ScriptedReply(calls=calls), ScriptedReply(text="ok"))
    assert result.status == "completed", result
    assert len(seen) == 2
    assert [m.text for m in result.messages if m.role == "tool"] == ["found a", "found b"]
    assert_valid(result.messages)


@both
def test_a_million_tool_calls(wire, stream):
    reply = ScriptedReply(calls=(ScriptedCall("search", {"q": "a"}, count=100_000),))
    result, _, _ = play(wire, stream, limits(), reply)
    assert (result.status, result.reason) == ("failed", "llm_failure")
    assert result.used.tool_calls == 0
    assert_valid(result.messages)


def test_cancelling_while_a_real_server_answers_closes_the_connection():
    async def main():
        async with Rehearsal(Script((ScriptedReply(text="slow", delay_ms=20_000),))) as server:
            driver = Driver(limits(), from_spec("openai:x", base_url=f"{server.url}/v1"))
            handle = driver.start("x")
            await asyncio.sleep(0.1)
            handle.cancel()
            result = await handle
            await asyncio.sleep(0.1)
            await driver.aclose()
            return result, list(server.ledger)

    result, seen = asyncio.run(main())
    assert result.status == "cancelled"
    assert seen[0].client_left


def test_many_runs_at_once_keep_apart():
    async def main():
        replies = (
            ScriptedReply(tool="search", args={"q": "a"}, when=When(results_below=3), times="always"),
            ScriptedReply(text="done", times="always"),
        )
        async with Rehearsal(Script(replies)) as server:
            driver = Driver(limits(llm_calls=9), from_spec("openai:x", base_url=f"{server.url}/v1"), [search])
            results = await asyncio.gather(*(driver.run(f"question {i}") for i in range(30)))
            await driver.aclose()
            return results

    for i, result in enumerate(asyncio.run(main())):
        assert (result.status, result.used.llm_calls) == ("completed", 4)
        assert result.messages[0].text == f"question {i}"


def test_the_sync_face_over_http():
    with Rehearsal(Script((ScriptedReply(text="ok", times="always"),))) as server:
        driver = Driver(limits(), from_spec("anthropic:x", base_url=server.url))
        assert [driver.run_sync("x").text for _ in range(3)] == ["ok"] * 3
        driver.close()


@pytest.mark.parametrize(
    ("wire", "maxima", "own", "wanted", "sent"),
    [
        ("openai", {"tokens": 200_000}, None, None, 16_384),
        ("anthropic", {"tokens": 200_000}, None, None, 4_096),
        ("openai", {"tokens": 200_000}, 500, None, 500),
        ("anthropic", {"output_tokens": 100_000}, 500, None, 500),
        ("openai", {"tokens": 200_000}, 500, 30_000, 500),
        ("openai", {"tokens": 200_000}, None, 30_000, 30_000),
        ("openai", {"output_tokens": 70}, None, None, 70),
        ("anthropic", {"output_tokens": 70}, None, 300, 70),
        ("openai", {"input_tokens": 100_000}, None, None, None),
        ("openai", {}, None, None, None),
        ("anthropic", {}, None, None, 4_096),
    ],
)
def test_a_large_budget_asks_for_no_larger_output_than_models_write(wire, maxima, own, wanted, sent):
    with Rehearsal(Script((ScriptedReply(text="ok"),))) as server:
        base = f"{server.url}/v1" if wire == "openai" else server.url
        client = from_spec(f"{wire}:rehearsed", base_url=base, max_output=own)
        driver = Driver(limits(**maxima), client, max_output=wanted)
        assert driver.run_sync("x").text == "ok"
        driver.close()
        assert server.ledger[0].body.get("max_tokens") == sent
