"""Clients, tools, hooks and stores that do what nobody expects: the run ends, and says why."""

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError as FutureCancelled

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, forever, limits, says

from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Finalize
from engine.run.cancellation import must_pass
from engine.run.driver import Driver
from engine.run.results import ToolResult
from engine.store import JournalError, MemoryStore


def run(driver, question="hello"):
    async def main():
        return await asyncio.wait_for(driver.start(question), 20)

    return asyncio.run(main())


async def ok():
    return "ok"


# Tools.


def exits():
    sys.exit(3)


async def exits_async():
    raise SystemExit(3)


async def cancels_itself():
    raise asyncio.CancelledError


async def awaits_a_cancelled_future():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def raises_stop_iteration():
    raise StopIteration("x")


def raises_base():
    class Odd(BaseException):
        pass

    raise Odd("odd")


def other_cancelled():
    raise FutureCancelled


def interrupts():
    raise KeyboardInterrupt


async def interrupts_async():
    raise KeyboardInterrupt


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def recursion():
    return recursion()


def no_json():
    return object()


def endless():
    value = []
    value.append(value)
    return value


def odd_status():
    return ToolResult("x", "weird")


def is_a_coroutine_after_all():
    return exits_async()


HOSTILE = [
    exits, exits_async, cancels_itself, awaits_a_cancelled_future, raises_stop_iteration, raises_base, other_cancelled,
    interrupts, interrupts_async, recursion, no_json, endless, odd_status, is_a_coroutine_after_all,
]  # fmt: skip


@pytest.mark.parametrize("tool", HOSTILE, ids=lambda tool: tool.__name__)
def test_a_hostile_tool_is_a_failed_result_and_the_run_goes_on(tool):
    result = run(Driver(limits(), Model(asks(tool.__name__, "ok"), says("done")), [tool, ok]))
    assert (result.status, result.text) == ("completed", "done")
    failed, fine = result.messages[2:4]
    assert failed.is_error
    assert failed.text.startswith(f"The tool `{tool.__name__}` ")
    assert "Traceback" not in failed.text
    assert len(failed.text) < 700
    assert fine.text == "ok"


def test_all_hostile_tools_at_once():
    names = [tool.__name__ for tool in HOSTILE]
    result = run(Driver(limits(), Model(asks(*names), says("done")), HOSTILE))
    assert result.text == "done"
    assert all(m.is_error for m in result.messages[2:-1])
    assert_valid(result.messages)


def test_the_most_calls_of_one_reply_that_are_accepted():
    names = ["ok"] * 1024
    result = run(Driver(limits(), Model(asks(*names), says("done")), [ok]))
    assert (result.status, result.used.tool_calls) == ("completed", 1024)
    result = run(Driver(limits(), Model(asks(*names, "ok")), [ok]))
    assert (result.status, result.used.tool_calls) == ("failed", 0)


def test_arguments_and_results_with_lone_surrogates():
    def odd(text: str = "") -> str:
        return "\udc80"

    reply = Reply(Message("assistant", "\ud800", (ToolCall("\ud800", "odd", '{"text": "\\ud800"}'),)), "tool_calls")
    result = run(Driver(limits(), Model(reply, says("done\ud800")), [odd]))
    assert result.status == "completed"
    assert_valid(result.messages)
    for message in result.messages:
        message.text.encode()


# Clients and hooks.


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (asyncio.CancelledError(), "cancelled itself"),
        (RecursionError("deep"), "RecursionError"),
        (MemoryError(), "MemoryError"),
        (Reply(None), "no message with a text"),
        (Reply(Message("assistant", None)), "no message with a text"),
        (Reply(Message("assistant", "x"), "weird"), "unknown finish"),
        (Reply(Message("assistant", "x"), "stop", Usage(-1, 0)), "not in whole numbers"),
        (Reply(Message("assistant", "x"), "stop", Usage(1.5, 0)), "not in whole numbers"),
        (Reply(Message("assistant", "", (ToolCall(None, "ok"),))), "fields of the wrong type"),
        (Reply(Message("assistant", "", (ToolCall("a", "ok", {}),))), "fields of the wrong type"),
        (Reply(Message("assistant", "", (ToolCall("a", "ok", "{}", "weird"),))), "fields of the wrong type"),
    ],
)
def test_a_reply_of_no_use_is_a_failed_call(answer, said):
    result = run(Driver(limits(), Model(answer), [ok]))
    assert result.status == "failed"
    assert said in result.error
    assert result.used.llm_calls == 1
    assert_valid(result.messages)


def test_a_reply_in_another_role_is_the_assistants():
    result = run(Driver(limits(), Model(Reply(Message("user", "hi"))), [ok]))
    assert [m.role for m in result.messages] == ["user", "assistant"]


@pytest.mark.parametrize("where", ["request_processors", "before_model", "after_model", "before_tool", "after_tool"])
@pytest.mark.parametrize(
    "raised", [SystemExit(1), asyncio.CancelledError(), KeyError(), KeyboardInterrupt(), Unspeakable()], ids=repr
)
def test_whatever_a_hook_raises_ends_no_more_than_its_call(where, raised):
    def hook(*given):
        raise raised

    result = run(Driver(limits(), Model(asks("ok"), says("done")), [ok], **{where: [hook]}))
    if "tool" in where:
        assert result.text == "done"
        assert result.messages[2].is_error
    else:
        assert result.status == "failed"
        assert result.error.startswith("host: ")
    assert_valid(result.messages)


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), Unspeakable()], ids=repr)
def test_whatever_a_resolver_raises_is_only_the_next_step(raised):
    def wrap(context):
        raise raised

    ladder = (Finalize(using="wrap"), Finalize(text="Answer now."))
    driver = Driver(limits(llm_calls=(1, ladder)), Model(says("done")), [ok], resolvers={"wrap": wrap})
    assert run(driver).status == "finalized"


def test_an_interrupt_that_may_be_ctrl_c_is_kept_from_nobody():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert must_pass(KeyboardInterrupt())
        signal.signal(signal.SIGINT, lambda *_: None)
        assert not must_pass(KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGINT, handler)
    assert must_pass(GeneratorExit())
    assert not must_pass(SystemExit())


def test_a_client_that_streams_after_its_end_reaches_nobody():
    pieces = []

    async def late(request, on_delta):
        async def later():
            await asyncio.sleep(0.02)
            on_delta("late")

        pieces.append(asyncio.ensure_future(later()))
        return says("done")

    async def main():
        handle = Driver(limits(), Model(late)).stream("x")
        events = [event async for event in handle]
        await asyncio.sleep(0.05)
        return events

    assert "late" not in [getattr(event, "text", "") for event in asyncio.run(main())]


# Stores.


@pytest.mark.parametrize("at", range(6))
def test_a_journal_that_breaks_stops_the_run_and_says_so(at):
    class Full(MemoryStore):
        def append(self, run, seq, event, decision):
            if seq == at:
                raise JournalError("the disk is full")
            super().append(run, seq, event, decision)

    running = []

    async def slow():
        running.append(1)
        try:
            await asyncio.sleep(30)
        finally:
            running.pop()

    async def ok():
        await asyncio.sleep(0)
        assert running
        return "ok"

    store = Full()

    async def main():
        driver = Driver(limits(), Model(asks("slow", "ok"), says("done")), [ok, slow], journal=store)
        with pytest.raises(JournalError, match="disk is full"):
            await asyncio.wait_for(driver.start("x", run_id="r"), 5)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert len(store.load("r").steps) == at
    assert running == []


def test_a_content_that_cannot_be_stored_breaks_the_run_loudly():
    class Broken(MemoryStore):
        puts = 0

        def put(self, data):
            self.puts += 1
            if self.puts > 3:
                raise JournalError("no space for contents")
            return super().put(data)

    with pytest.raises(JournalError, match="no space"):
        run(Driver(limits(), Model(asks("ok"), says("done")), [ok], journal=Broken()))
    # Also where nothing but a timer could tell.
    with pytest.raises(JournalError, match="no space"):
        run(Driver(limits(attempt_wall=30), Model(asks("ok"), forever), [ok], journal=Broken()))


# Interrupts.


def test_ctrl_c_in_the_sync_face_cancels_the_run_and_is_raised():
    store = MemoryStore()
    driver = Driver(limits(), Model(forever), journal=store)
    began = time.monotonic()
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        driver.run_sync("x", run_id="r")
    assert time.monotonic() - began < 60
    assert store.runs()[0].status == "cancelled"
    driver.close()


def test_starting_without_an_event_loop_says_what_to_do():
    store = MemoryStore()
    driver = Driver(limits(llm_calls=(1, FINALIZE)), Model(), journal=store)
    with pytest.raises(RuntimeError, match="use `run_sync`"):
        driver.start("x")
    with pytest.raises(RuntimeError, match="use `run_sync`"):
        driver.resume("x")
    assert store.runs() == []
