"""What a listener sees of a run: the events of a stream, in order, and nothing it must not see."""

import asyncio

import pytest
from run_fakes import FINALIZE, Model, asks, limits, says

from engine.clients.base import ModelError
from engine.core.policy import Finalization, Finalize, Limit, Policy, ToolRule
from engine.run import streaming as s
from engine.run.driver import Driver


async def echo(text: str = "") -> str:
    return f"echo {text}"


def streamed(*pieces, then):
    """A model that streams its pieces before it answers (or fails)."""

    async def reply(request, on_delta):
        assert request.stream
        for piece in pieces:
            on_delta(piece)
            await asyncio.sleep(0)
        return then

    return reply


def events_of(driver, question="x"):
    async def main():
        handle = driver.stream(question, run_id="r")
        return [event async for event in handle if not isinstance(event, s.Budget)], await handle

    return asyncio.run(main())


def test_the_events_of_a_run_in_order():
    policy = Policy(
        name="t", limits=(Limit(resource="llm_calls", max=2, then=FINALIZE),), tools=(ToolRule(glob="no", deny=True),)
    )
    model = Model(asks(("echo", '{"text": "a"}'), "no"), streamed("do", "ne", then=says("done")), name="fast")

    async def no(): ...

    events, result = events_of(Driver(policy, model, [echo, no]))
    assert [type(event).__name__ for event in events] == [
        "RunBegan", "CallStarted", "CallEnded", "ToolRefused", "ToolStarted", "ToolFinished",
        "CallStarted", "TextDelta", "TextDelta", "CallEnded", "RunEnded",
    ]  # fmt: skip
    began, first, _, refused, started, finished, final, piece, _, ended, end = events
    assert began.run == "r"
    assert (first.call, first.attempt, first.client, first.final) == ("1", 1, "fast", False)
    assert (refused.name, refused.why, refused.id) == ("no", "denied", "1.1")
    assert (started.name, started.arguments) == ("echo", '{"text": "a"}')
    assert (finished.name, finished.status, finished.text) == ("echo", "ok", "echo a")
    assert (final.final, final.why, final.because) == (True, "llm_calls", "limit llm_calls")
    assert (piece.call, piece.attempt, piece.text) == ("2", 1, "do")
    assert (ended.text, ended.usage.output) == ("done", 5)
    assert end.result == result


def test_text_of_an_attempt_that_failed_bears_its_ids_and_is_kept_as_partial():
    model = Model(streamed("half ", "an answer", then=ModelError("network", "cut", text="half an answer")))
    events, result = events_of(Driver(limits(), model))
    assert (result.status, result.text, result.partial) == ("failed", "half an answer", True)
    ended = next(event for event in events if isinstance(event, s.CallEnded))
    assert (ended.error, ended.message, ended.text) == ("network", "cut", "half an answer")
    assert ended.usage.output > 0
    assert not any(isinstance(event, s.TextRetracted) for event in events)


def test_budgets_are_told_when_they_change():
    async def main():
        handle = Driver(limits(llm_calls=5, tokens=1000), Model(asks("echo"), says("ok")), [echo]).stream("x")
        return [event async for event in handle if isinstance(event, s.Budget)]

    told = asyncio.run(main())
    assert [(b.used, b.maximum) for b in told if b.limit == "llm_calls"] == [(0, 5), (1, 5), (2, 5)]
    assert [b.used for b in told if b.limit == "tokens"] == [0, 15, 30]
    assert {b.unit for b in told} == {"count"}


def test_warnings_of_the_host_are_notes():
    policy = limits(llm_calls=(1, (Finalize(using="missing"), Finalize())))
    events, _ = events_of(Driver(policy, Model(says("ok"))))
    assert any("no resolver named `missing`" in event.note.text for event in events if isinstance(event, s.Noted))


def test_an_empty_retry_is_told():
    model = Model(says(""), says("ok"))
    events, _ = events_of(Driver(Policy(name="t", finalization=Finalization(empty_retries=1)), model))
    planned = next(event for event in events if isinstance(event, s.RetryPlanned))
    assert (planned.call, planned.attempt) == ("1", 2)


def test_a_run_that_nobody_streams_does_not_ask_for_a_stream():
    model = Model(says("ok"))
    asyncio.run(Driver(limits(), model).run("x"))
    assert model.requests[0].stream is False

    async def main():
        handle = Driver(limits(), Model(says("ok"))).start("x")
        with pytest.raises(TypeError, match="not started to stream"):
            handle.__aiter__()
        await handle

    asyncio.run(main())


def test_a_stream_that_is_read_twice_ends_twice():
    async def main():
        handle = Driver(limits(), Model(says("ok"))).stream("x")
        first = [event async for event in handle]
        return first, [event async for event in handle]

    first, second = asyncio.run(main())
    assert first
    assert second == []
