"""A durable engine in memory: its record outlives the executions, which a test ends wherever it likes."""

import asyncio

from engine.core.state import NO_TIME
from engine.run.contents import Contents
from engine.run.effects import settles
from engine.runtimes.execution import Worker, execute
from engine.runtimes.records import Ended, Order, Timer, decode, encode
from engine.runtimes.texts import Texts


class Killed(Exception):
    """The process of a run has died."""


class Record:
    """What the engine keeps of one execution of a run: its order, and what has happened, in order."""

    def __init__(self, order, clock):
        self.order = encode(order)
        self.clock = clock
        self.happened = []
        self.signals = []
        self.arrived = asyncio.Event()
        self.performed = []
        """All jobs that were begun, once for each time: their keys, and the digests of the decisions they came from."""
        self.reports = []

    def signal(self, signal):
        self.signals.append(signal)
        self.arrived.set()


class Remembered:
    """``Environment`` over a record.

    ``lives``: it dies when so many more things have happened, before the last of them is on record or (``keep``) after
    it. ``most``: after so many things in all it wants a fresh execution.
    """

    def __init__(self, record, performing, *, lives=None, keep=True, most=None):
        self._record = record
        self._performing = performing
        self._ahead = list(record.happened)
        self._waiting = {}
        self._tasks = {}
        self._lives = lives
        self._keep = keep
        self._most = most
        self._count = 0

    @property
    def replaying(self):
        return bool(self._ahead)

    async def next(self, jobs, report, until):
        self._waiting |= {job.key: job for job in jobs}
        self._count += 1
        if self._ahead:
            happened = self._ahead.pop(0)
        else:
            self._record.reports.append(report)
            happened = await self._live(until)
            self._write(happened)
        if isinstance(happened, Ended):
            key = settles(happened.event)
            self._waiting.pop(key, None)
            self._tasks.pop(key, None)
        return happened

    def _write(self, happened):
        if self._lives is not None:
            self._lives -= 1
        if self._lives != 0 or self._keep:
            self._record.happened.append(happened)
            if not isinstance(happened, Ended | Timer):
                self._record.signals.remove(happened)
        if self._lives == 0:
            self.die()
            raise Killed

    def die(self):
        for task in self._tasks.values():
            task.cancel()

    async def _live(self, until):
        for key, job in self._waiting.items():
            if key not in self._tasks:
                self._record.performed.append((key, job.digest))
                self._tasks[key] = asyncio.ensure_future(self._performing.perform(job))
        if self._record.signals:
            return self._record.signals[0]
        self._record.arrived.clear()
        arrived = asyncio.ensure_future(self._record.arrived.wait())
        left = None if until >= NO_TIME else max(until - self._record.clock(), 0) / 1000
        await asyncio.wait({*self._tasks.values(), arrived}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        if self._record.signals:
            return self._record.signals[0]
        return next((task.result() for task in self._tasks.values() if task.done()), Timer(until))

    def cancel(self, key):
        self._performing.stop(key)

    def leave(self, key):
        self._waiting.pop(key, None)
        if task := self._tasks.pop(key, None):
            task.cancel()

    def should_continue_as_new(self):
        return self._most is not None and self._count >= self._most


async def lived(record, driver, **how):
    """One execution of a run, from its record as far as that goes: its end, or the order with which it goes on."""
    worker = Worker(driver, record.clock)
    order = decode(record.order, Order)
    texts = Texts(dict(order.contents))
    contents = Contents(texts)
    environment = Remembered(record, worker.performing(order, contents), **how)
    try:
        return await execute(order, worker, environment, texts, contents)
    finally:
        environment.die()
