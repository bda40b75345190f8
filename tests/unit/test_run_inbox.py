"""The inbox carries its loop; the alarm rings in time."""

import asyncio
import time

import pytest

from engine.core.events import Tick
from engine.core.state import NO_TIME
from engine.run.inbox import Inbox
from engine.run.timers import Alarm, system_clock


def in_loop(main):
    return asyncio.run(main())


def test_a_posted_event_runs_the_loop_on_the_spot():
    async def main():
        inbox, read = Inbox(asyncio.get_running_loop(), 10), []

        async def reader():
            while len(read) < 3:
                if not inbox:
                    await inbox.wait()
                read.append(inbox.take().at)
            return "done"

        inbox.serve(reader())
        inbox.post(Tick(20))
        assert read == [20]
        inbox.post(Tick(15))
        assert read == [20, 20]
        assert not inbox.result.done()
        inbox.post(Tick(30))
        inbox.post(Tick(40))  # nobody reads any more
        assert await inbox.result == "done"

    in_loop(main)


def test_what_the_loop_posts_itself_waits_its_turn():
    async def main():
        inbox, read = Inbox(asyncio.get_running_loop(), 0), []

        async def reader():
            while len(read) < 3:
                if not inbox:
                    await inbox.wait()
                read.append(inbox.take().at)
                inbox.post(Tick(read[-1] + 1))

        inbox.serve(reader())
        inbox.post(Tick(1))
        await inbox.result
        assert read == [1, 2, 3]

    in_loop(main)


def test_what_the_loop_raises_is_its_result():
    async def main():
        inbox = Inbox(asyncio.get_running_loop(), 0)

        async def reader():
            await inbox.wait()
            raise ValueError("broken")

        inbox.serve(reader())
        inbox.post(Tick(1))
        with pytest.raises(ValueError, match="broken"):
            await inbox.result

    in_loop(main)


def test_the_alarm_rings_once_at_the_earliest_time():
    async def main():
        rang = []
        alarm = Alarm(asyncio.get_running_loop(), system_clock, lambda: rang.append(system_clock()))
        now = system_clock()
        for at in (now + 40, NO_TIME, now + 20, now + 30):
            alarm.set(at)
        await asyncio.sleep(0.1)
        assert len(rang) == 1
        assert now + 20 <= rang[0] < now + 60
        alarm.set(system_clock() + 10)
        alarm.stop()
        alarm.set(system_clock() - 5)
        await asyncio.sleep(0.05)
        assert len(rang) == 2

    in_loop(main)


def test_the_clock_is_the_worlds_in_milliseconds():
    assert abs(system_clock() - time.time() * 1000) < 1000
    assert isinstance(system_clock(), int)


def test_what_is_dropped_is_never_read():
    async def main():
        inbox, read = Inbox(asyncio.get_running_loop(), 0), []

        async def reader():
            while len(read) < 2:
                if not inbox:
                    await inbox.wait()
                read.append(inbox.take().at)
                if read == [1]:
                    inbox.post(Tick(2))
                    inbox.post(Tick(3))
                    inbox.drop(lambda event: event.at == 2)

        inbox.drop(lambda event: True)  # there is nothing yet
        inbox.serve(reader())
        inbox.post(Tick(1))
        await inbox.result
        assert read == [1, 3]

    in_loop(main)
