"""Failures over real HTTP, in both wire formats: what the servers saw is what counts."""

import asyncio
import time
from email.utils import formatdate

import pytest
from run_fakes import assert_valid

from engine.clients import from_spec
from engine.core.ladders import Fallback, Finalize, Retry
from engine.core.policy import Breaker, Detector, FailureRule, Limit, Policy
from engine.rehearsal import Rehearsal, Script, ScriptedReply, When
from engine.run.driver import Driver
from engine.run.streaming import CallStarted, RetryPlanned, ShownText, TextDelta, TextRetracted

BIG, SMALL = When(model="big"), When(model="small")
OTHER = {"openai": "anthropic", "anthropic": "openai"}


def ladder(*steps, reasons=("*",), **more):
    return Policy(name="t", failures=(FailureRule(reasons=reasons, then=steps),), **more)


QUICK = Retry(times=2, least=10, most=30, jitter=False)


def both(test):
    return pytest.mark.parametrize("wire", ["openai", "anthropic"])(
        pytest.mark.parametrize("stream", [False, True])(test)
    )


def client(server, wire, model, **options):
    base = f"{server.url}/v1" if wire == "openai" else server.url
    return from_spec(f"{wire}:{model}", base_url=base, **options)


def play(wire, stream, policy, *replies, tools=(), **options):
    """One run with ``main`` (the model big) in one wire format and ``cheap`` (small) in the other."""

    async def main():
        async with Rehearsal(Script(tuple(replies))) as server:
            clients = {
                "main": client(server, wire, "big"),
                "cheap": client(server, OTHER[wire], "small", max_output=50),
            }
            driver = Driver(policy, clients, tools, **options)
            handle = driver.start("What is it?", stream=stream)
            events = [event async for event in handle] if stream else []
            result = await handle
            await driver.aclose()
            return result, [(e.wire, e.body["model"]) for e in server.ledger], events, list(server.ledger)

    result, seen, events, ledger = asyncio.run(main())
    assert_valid(result.messages)
    return result, seen, events, ledger


@both
def test_the_other_client_has_another_wire_format_and_its_own_bounds(wire, stream):
    fallback = ladder(QUICK, Fallback(clients=("cheap",)), reasons=("rate_limit",))
    busy = ScriptedReply(fail="rate_limit", when=BIG, times="always")
    result, seen, _, ledger = play(wire, stream, fallback, busy, ScriptedReply(text="ok", when=SMALL), max_output=500)
    assert (result.text, result.client) == ("ok", "cheap")
    assert seen == [(wire, "big")] * 3 + [(OTHER[wire], "small")]
    assert [entry.body.get("max_tokens") for entry in ledger] == [500, 500, 500, 50]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("broken", ["cut", "half_event", "no_end", "hang"])
def test_a_stream_that_breaks_is_taken_back_before_the_other_client_speaks(wire, broken):
    policy = ladder(Fallback(clients=("cheap",)), limits=(Limit(resource="attempt_wall", max=400),))
    breaks = ScriptedReply(text="one two three four " * 5, broken=broken, after=5, when=BIG)
    result, _, events, _ = play(wire, True, policy, breaks, ScriptedReply(text="from the other", when=SMALL))
    assert result.text == "from the other"
    shown, seen = ShownText(), []
    for event in events:
        shown.show(event)
        seen.append(shown.text)
    assert any("one" in text for text in seen)
    assert not any("one" in text and "from" in text for text in seen)
    assert shown.text == "from the other"
    kinds = [type(e) for e in events if isinstance(e, TextRetracted | CallStarted)]
    assert kinds == [CallStarted, TextRetracted, CallStarted]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_an_error_inside_a_stream_is_classified_and_retried(wire):
    fails = ScriptedReply(text="one two three four", fail="overloaded", after=4)
    result, seen, events, _ = play(
        wire, True, ladder(QUICK, reasons=("overloaded", "provider")), fails, ScriptedReply(text="ok")
    )
    assert result.text == "ok"
    assert len(seen) == 2
    assert len([e for e in events if isinstance(e, TextRetracted)]) == 1
    assert "".join(e.text for e in events if isinstance(e, TextDelta)).endswith("ok")


@both
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited(wire, stream, form):
    value = 1 if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
    policy = ladder(Retry(times=1, least=10, most=5_000, jitter=False))
    began = time.monotonic()
    busy = ScriptedReply(fail="rate_limit", retry_after=value)
    result, seen, events, _ = play(wire, stream, policy, busy, ScriptedReply(text="ok"))
    assert result.ok
    assert len(seen) == 2
    assert 0.9 <= time.monotonic() - began < 60
    if stream:
        assert [900 < e.wait <= 2000 for e in events if isinstance(e, RetryPlanned)] == [True]


@both
def test_a_full_context_goes_to_a_larger_window_with_the_whole_conversation(wire, stream):
    async def look() -> str:
        return "a long text"

    policy = ladder(Fallback(clients=("cheap",)), reasons=("context_exceeded",))
    replies = (
        ScriptedReply(tool="look", when=When(model="big", results_below=1)),
        ScriptedReply(fail="context_exceeded", when=BIG),
        ScriptedReply(text="read", when=When(model="small", results_at_least=1)),
    )
    result, seen, _, _ = play(wire, stream, policy, *replies, tools=[look])
    assert (result.text, result.client) == ("read", "cheap")
    assert [model for _, model in seen] == ["big", "big", "small"]


@both
def test_a_stuck_tool_is_hidden_from_the_model(wire, stream):
    async def look() -> str:
        raise ValueError("no")

    async def other() -> str:
        return "yes"

    policy = Policy(
        name="t", breakers=(Breaker(glob="look", trips=(Detector(kind="same_args", n=2),), when_open="hide"),)
    )
    stuck = ScriptedReply(tool="look", when=When(tool="look"), times="always")
    result, _, _, ledger = play(wire, stream, policy, stuck, ScriptedReply(text="without it"), tools=[look, other])
    assert result.text == "without it"
    assert [sorted(entry.offered) for entry in ledger] == [["look", "other"], ["look", "other"], ["other"]]


@both
def test_when_nothing_helps_the_final_call_answers(wire, stream):
    async def look() -> str:
        return "seen"

    policy = ladder(Retry(times=1, least=5, most=5), Finalize(text="Answer."), reasons=("provider",))
    replies = (
        ScriptedReply(tool="look", when=When(results_below=1)),
        ScriptedReply(status=500, when=When(tools=True), times=2),
        ScriptedReply(text="what I have", when=When(tools=False)),
    )
    result, seen, _, _ = play(wire, stream, policy, *replies, tools=[look])
    assert (result.status, result.text) == ("finalized", "what I have")
    assert len(seen) == 4
