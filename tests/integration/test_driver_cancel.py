"""Cancellation, deadlines and grace: what is going on really stops, and the conversation stays valid."""

import asyncio
import threading
import time

import pytest
from run_fakes import FINALIZE, Model, asks, assert_valid, forever, limits, says

from engine.core.events import Cancelled
from engine.core.policy import Finalize, Limit, Policy, ToolRule
from engine.run.driver import Driver
from engine.run.streaming import CallStarted, RunEnded, ToolStarted
from engine.run.tools import ToolContext
from engine.store import MemoryStore


class Slow:
    """Tools that take their time."""

    def __init__(self):
        self.cancelled = 0
        self.release = threading.Event()
        self.ended = threading.Event()

    async def hang(self):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def stubborn(self):
        for _ in range(200):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                self.cancelled += 1
                if self.release.is_set():
                    raise
        return "never"

    def block(self):
        self.release.wait(10)
        self.ended.set()
        return "late"

    def polite(self, context: ToolContext):
        while not context.cancelled:
            time.sleep(0.005)
        return "noticed"

    async def quick(self):
        return "ok"

    @property
    def tools(self):
        return [self.hang, self.stubborn, self.block, self.polite, self.quick]


async def until(handle, kind):
    async for event in handle:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


async def eventually(holds):
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 5 s")


async def cancelled_at(driver, kind, cancel=None):
    handle = driver.stream("hello")
    await until(handle, kind)
    await asyncio.sleep(0.01)
    (cancel or handle.cancel)()
    return await asyncio.wait_for(handle, 10)


def test_cancelling_during_a_model_call():
    model = Model(forever)
    result = asyncio.run(cancelled_at(Driver(limits(), model), CallStarted))
    assert (result.status, result.reason) == ("cancelled", "user")
    assert model.cancelled == 1
    assert_valid(result.messages)


def test_cancelling_during_tools_keeps_what_has_ended(monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 60_000)
    slow = Slow()
    began = time.monotonic()
    result = asyncio.run(cancelled_at(Driver(limits(), Model(asks("quick", "hang", "hang")), slow.tools), ToolStarted))
    assert time.monotonic() - began < 30  # the grace is a minute
    assert result.status == "cancelled"
    assert slow.cancelled == 2
    assert [m.text for m in result.messages[2:]] == ["ok", *["This call was cancelled before it finished."] * 2]
    assert_valid(result.messages)


def test_a_tool_in_a_thread_may_notice(monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 60_000)
    slow = Slow()
    began = time.monotonic()
    result = asyncio.run(cancelled_at(Driver(limits(), Model(asks("polite")), slow.tools), ToolStarted))
    assert time.monotonic() - began < 30  # the grace is a minute
    assert (result.status, result.messages[-1].text) == ("cancelled", "noticed")


@pytest.mark.parametrize("tool", ["block", "stubborn"])
def test_what_does_not_stop_is_left_behind_after_the_grace(tool, monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 50)
    slow = Slow()

    async def main():
        began = time.monotonic()
        result = await cancelled_at(Driver(limits(), Model(asks(tool, "hang")), slow.tools), ToolStarted)
        took = time.monotonic() - began
        slow.release.set()
        if tool == "block":
            await asyncio.to_thread(slow.ended.wait, 5)
        await asyncio.sleep(0.02)
        return result, took

    result, took = asyncio.run(main())
    assert 0.04 < took < 30
    assert result.status == "cancelled"
    assert_valid(result.messages)
    assert "late" not in [m.text for m in result.messages]


def test_a_client_that_ignores_its_cancellation_is_left_behind(monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 50)
    ignored = []

    async def stubborn(request):
        for _ in range(10):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                ignored.append(1)
        return says("too late")

    result = asyncio.run(cancelled_at(Driver(limits(), Model(stubborn)), CallStarted))
    assert (result.status, result.text) == ("cancelled", "")
    assert ignored


def test_cancelling_twice_keeps_the_first_cause_and_after_the_end_does_nothing():
    async def main():
        handle = Driver(limits(), Model(forever)).start("x")
        handle.cancel("first")
        handle.cancel("second")
        result = await handle
        handle.cancel("third")
        return result, await handle

    first, again = asyncio.run(main())
    assert (first.status, first.reason) == ("cancelled", "first")
    assert again is first


def test_cancelling_from_another_thread():
    async def main():
        handle = Driver(limits(), Model(forever)).stream("x")
        await until(handle, CallStarted)
        threading.Thread(target=handle.cancel).start()
        return await asyncio.wait_for(handle, 5)

    assert asyncio.run(main()).status == "cancelled"


def test_a_tool_may_cancel_its_own_run():
    async def main():
        async def suicide():
            handle.cancel("tool")
            await asyncio.sleep(600)

        handle = Driver(limits(), Model(asks("suicide")), [suicide]).start("x")
        return await asyncio.wait_for(handle, 5)

    result = asyncio.run(main())
    assert (result.status, result.reason) == ("cancelled", "tool")
    assert_valid(result.messages)


def test_cancelling_whoever_awaits_cancels_the_run_properly_first():
    slow, store = Slow(), MemoryStore()
    driver = Driver(limits(), Model(asks("hang")), slow.tools, journal=store)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await driver.run("x", run_id="r")

    asyncio.run(main())
    assert slow.cancelled == 1
    assert store.runs()[0].status == "cancelled"
    assert Cancelled in [type(s.event) for s in store.load("r").steps]


def test_a_second_cancellation_leaves_at_once_and_the_run_still_ends(monkeypatch):
    monkeypatch.setattr("engine.core.ends.DEFAULT_GRACE_MS", 1_000)
    slow, store = Slow(), MemoryStore()
    driver = Driver(limits(), Model(asks("block")), slow.tools, journal=store)

    async def main():
        task = asyncio.create_task(driver.run("x", run_id="r"))
        await asyncio.sleep(0.03)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert store.runs()[0].status == "running"
        await eventually(lambda: store.runs()[0].status != "running")

    asyncio.run(main())
    slow.release.set()
    assert store.runs()[0].status == "cancelled"


def test_an_event_loop_that_shuts_down_ends_the_run():
    slow, store = Slow(), MemoryStore()

    async def main():
        Driver(limits(), Model(asks("hang", "hang")), slow.tools, journal=store).start("x", run_id="r")
        await asyncio.sleep(0.03)

    asyncio.run(main())
    assert slow.cancelled == 2
    assert store.runs()[0].status == "cancelled"


def test_leaving_the_block_early_cancels_the_run():
    model = Model(forever)

    async def main():
        async with Driver(limits(), model).stream("x") as handle:
            async for event in handle:
                if isinstance(event, CallStarted):
                    break
            await asyncio.sleep(0)
        return await handle

    assert asyncio.run(main()).status == "cancelled"
    assert model.cancelled == 1


@pytest.mark.parametrize("at", range(14))
def test_cancelling_at_every_event_of_a_run_ends_it_properly(at):
    """Whatever has just been journaled when the cancellation comes."""
    slow = Slow()

    class Store(MemoryStore):
        def append(self, run, seq, event, decision):
            super().append(run, seq, event, decision)
            if seq == at:
                asyncio.get_running_loop().call_soon(lambda: handle.cancel())

    store = Store()

    async def main():
        nonlocal handle
        model = Model(asks("quick", "hang_a_little"), asks("quick"), says("done"))

        async def hang_a_little():
            await asyncio.sleep(0.01)

        driver = Driver(limits(llm_calls=(3, FINALIZE)), model, [slow.quick, hang_a_little], journal=store)
        handle = driver.start("x", run_id="r")
        return await asyncio.wait_for(handle, 5)

    handle = None
    result = asyncio.run(main())
    assert result.status in ("cancelled", "finalized")
    assert_valid(result.messages)
    assert store.runs()[0].status == result.status
    assert sum(type(s.decision).__name__ == "End" for s in store.load("r").steps) == 1


# Deadlines.


def wall(ms, ladder=(), reserve=0, **more):
    return Policy(name="t", limits=(Limit(resource="wall", max=ms, then=ladder, reserve=reserve),), **more)


def timed(driver):
    began = time.monotonic()
    result = asyncio.run(driver.run("x"))
    return result, time.monotonic() - began


def test_the_wall_cuts_a_model_call():
    model = Model(forever)
    result, took = timed(Driver(wall(80), model))
    assert (result.status, result.reason) == ("incomplete", "wall")
    assert 0.07 < took < 30
    assert model.cancelled == 1


def test_an_attempt_that_takes_too_long_has_failed():
    policy = Policy(name="t", limits=(Limit(resource="attempt_wall", max=50),))
    model = Model(forever)
    result, took = timed(Driver(policy, model))
    assert (result.status, result.error) == (
        "failed",
        "timeout: no answer in time (attempt_wall 50ms, limit attempt_wall)",
    )
    assert took < 30
    assert model.cancelled == 1


def test_the_reserve_of_the_wall_leaves_time_for_the_final_call():
    slow = Slow()
    model = Model(asks("hang"), says("in time"))
    result, took = timed(Driver(wall(5_000, (Finalize(),), reserve=4_800), model, slow.tools))
    assert (result.status, result.reason, result.text) == ("finalized", "wall", "in time")
    assert 0.19 < took < 30
    assert slow.cancelled == 1
    assert "took longer" in result.messages[2].text


@pytest.mark.parametrize("name", ["hang", "block", "stubborn"])
def test_a_tool_is_cut_at_its_timeout_and_its_late_end_changes_nothing(name):
    slow = Slow()
    policy = Policy(name="t", tools=(ToolRule(glob=name, timeout=50),))
    store = MemoryStore()

    async def main():
        model = Model(asks(name, "quick"), lambda request: asyncio.sleep(1, says("went on")))
        driver = Driver(policy, model, slow.tools, journal=store)
        handle = driver.start("x", run_id="r")
        await asyncio.sleep(0.5)
        slow.release.set()  # it ends while the run goes on
        return await handle

    result = asyncio.run(main())
    assert (result.status, result.text) == ("completed", "went on")
    timed_out, ok = result.messages[2:4]
    assert "took longer" in timed_out.text
    assert timed_out.is_error
    assert ok.text == "ok"
    ends = [s.event for s in store.load("r").steps if type(s.event).__name__ == "ToolEnded"]
    assert sorted(e.status for e in ends) == ["ok", "timed_out"]


def test_a_blocked_thread_keeps_neither_others_nor_the_process_waiting():
    slow = Slow()
    policy = Policy(name="t", tools=(ToolRule(glob="block", timeout=30),))
    blocked = ["block"] * 40
    result, took = timed(Driver(policy, Model(asks(*blocked, "quick"), says("done")), slow.tools))
    slow.release.set()
    assert result.status == "completed"
    assert took < 30


def test_the_last_event_of_a_cancelled_stream_is_its_end():
    async def main():
        handle = Driver(limits(), Model(forever)).stream("x")
        handle.cancel()
        return [event async for event in handle]

    events = asyncio.run(main())
    assert isinstance(events[-1], RunEnded)
    assert events[-1].result.status == "cancelled"
