"""One run on DBOS: every wait of the loop is one step, and what it recorded is what happened.

DBOS does not give back concurrent steps in the order in which they ended, so jobs are tasks of this process and no
steps of their own; a wait begins them, takes the first end or signal, and that is its record. So a run has one step for
each thing that happens in it, which is what it would have without us.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from dbos import DBOS
from msgspec import Struct

from engine.core.state import NO_TIME
from engine.run.effects import settles
from engine.run.errors import RunError
from engine.run.timers import Clock
from engine.runtimes.environment import Job
from engine.runtimes.performing import LONGEST_S, Performing
from engine.runtimes.records import Ended, Happening, Order, Report, Signal, Timer, decode, encode

_LONGEST_NAME = 80


class Given(Struct, frozen=True, omit_defaults=True):
    """The record of one wait: what happened, with the ``number`` if it was a signal; ``refused``: why the run ends."""

    happened: Happening | None = None
    number: int = 0
    refused: str = ""


class Message(Struct, frozen=True, omit_defaults=True):
    """A signal as it lies on the board. ``refused``: a run below this one could not be carried out, why."""

    signal: Signal | None = None
    refused: str = ""


class Around(Protocol):
    """What the worker does for its runs. ``spawn`` and ``cancel`` can be called again for the same run."""

    def waits(self, run: str, report: Report, arrived: Callable[[int, Message], None]) -> None: ...

    def recorded(self, number: int) -> None: ...

    async def spawn(self, order: Order) -> None: ...

    async def cancel(self, run: str, cause: str) -> None: ...


class Steps:
    """``Environment`` over the steps of a workflow. ``refusal`` is asked in the first step of the run only.

    ``on_record`` is how many steps are on record already, as far as somebody needs to know.
    """

    def __init__(
        self,
        run: str,
        performing: Performing,
        around: Around,
        refusal: Callable[[], str],
        clock: Clock,
        on_record: int = 0,
    ) -> None:
        self._run = run
        self._performing = performing
        self._around = around
        self._refusal: Callable[[], str] | None = refusal
        self._clock = clock
        self._on_record = on_record
        self._waiting: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[Ended]] = {}
        self._stopped: set[str] = set()
        self._inbox: dict[int, Message] = {}
        self._given: set[int] = set()
        """Signals that were given out, by their numbers: the board may show them again."""
        self._ended: deque[str] = deque()
        """Jobs that have ended, in that order, by their keys."""
        self._wanted: asyncio.Future[None] | None = None
        """Whoever waits for something to happen."""
        self._before: list[Callable[[], Awaitable[None]]] = []
        """What is to be done before the next wait, unless that is on record: then it was done before it."""

    @property
    def replaying(self) -> bool:
        return self._on_record > 0

    async def next(self, jobs: Sequence[Job], report: Report, until: int) -> Happening:
        self._waiting |= {job.key: job for job in jobs}
        text = await DBOS.run_step_async({"name": self._name(), "retries_allowed": False}, self._live, report, until)
        self._before.clear()
        self._refusal = None
        self._on_record -= 1
        given = decode(text, Given)
        if given.refused or given.happened is None:
            raise RunError(given.refused)
        if given.number:
            self._given.add(given.number)
            self._inbox.pop(given.number, None)
            self._around.recorded(given.number)
        if isinstance(given.happened, Ended):
            key = settles(given.happened.event)
            self._waiting.pop(key, None)
            self._tasks.pop(key, None)
            self._stopped.discard(key)
        return given.happened

    def cancel(self, key: str) -> None:
        self._stopped.add(key)
        self._performing.stop(key)

    def leave(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._stopped.discard(key)
        if task := self._tasks.pop(key, None):
            task.cancel()

    def spawn(self, order: Order) -> None:
        self._before.append(lambda: self._around.spawn(order))

    def cancel_child(self, run: str, cause: str) -> None:
        self._before.append(lambda: self._around.cancel(run, cause))

    def should_continue_as_new(self) -> bool:
        return False  # a row a step, however many: there is nothing to get rid of

    async def close(self) -> None:
        """Nothing goes on here any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Inside.

    def _name(self) -> str:
        """What is waited for. DBOS compares it with the record, so a step that has moved is noticed at once."""
        return (" ".join(sorted(self._waiting)) or "nothing")[:_LONGEST_NAME]

    async def _live(self, report: Report, until: int) -> str:
        if self._refusal is not None and (why := self._refusal()):
            return encode(Given(refused=why))
        self._on_record = 0
        for act in self._before:
            await act()
        for key, job in self._waiting.items():
            if key not in self._tasks:
                self._tasks[key] = asyncio.ensure_future(self._performing.perform(job))
                self._tasks[key].add_done_callback(partial(self._over, key))
                if key in self._stopped:  # by a decision that is on record
                    asyncio.get_running_loop().call_soon(self._performing.stop, key)
        self._around.waits(self._run, report, self._deliver)
        while (given := self._happened(until)) is None:
            await self._something(until)
        return encode(given)

    def _happened(self, until: int) -> Given | None:
        for number, message in sorted(self._inbox.items()):
            if number not in self._given:
                return Given(message.signal, number, message.refused)
        while self._ended:
            if (task := self._tasks.get(self._ended[0])) is not None and task.done():
                return Given(task.result())
            self._ended.popleft()  # given out, or left behind
        return Given(Timer(until)) if self._clock() >= until else None

    async def _something(self, until: int) -> None:
        loop = asyncio.get_running_loop()
        left = LONGEST_S if until >= NO_TIME else max((until - self._clock()) / 1000, 0.0)
        self._wanted = loop.create_future()
        timer = loop.call_later(min(left, LONGEST_S), self._wake)
        try:
            await self._wanted
        finally:
            timer.cancel()
            self._wanted = None

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    def _over(self, key: str, _: object) -> None:
        self._ended.append(key)
        self._wake()

    def _deliver(self, number: int, message: Message) -> None:
        self._inbox[number] = message
        self._wake()
