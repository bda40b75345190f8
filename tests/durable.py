"""A durable engine in memory: its records outlive the executions of runs, which die wherever a test likes."""

import asyncio

from engine.core.state import NO_TIME
from engine.run.contents import Contents
from engine.run.effects import settles
from engine.runtimes.execution import Worker, execute
from engine.runtimes.records import Cancel, ChildOver, Ended, Order, Timer, decode, encode
from engine.runtimes.texts import Texts


class Killed(Exception):
    """The process of a run has died."""


class Record:
    """What the engine keeps of a run: the order of its execution, what has happened in it, and what was sent to it."""

    def __init__(self, order):
        self.order = encode(order)
        self.happened = []
        self.signals = []
        self.arrived = asyncio.Event()
        self.performed = []
        """All jobs that were begun, once for each time: their keys, and the digests of the decisions they came from."""
        self.reports = []
        self.executions = 1

    def signal(self, signal):
        self.signals.append(signal)
        self.arrived.set()


class Engine:
    """Runs of one driver. ``deaths()`` gives for each life of a run how many things happen in it, and whether the last
    of them is on record; ``most``: after so many things a run goes on in a fresh execution.
    """

    def __init__(self, driver, clock, *, deaths=lambda: (None, True), most=None):
        self.clock = clock
        self.worker = Worker(driver, clock)
        self.records = {}
        self.ends = {}
        self._deaths = deaths
        self._most = most

    def begin(self, order, above=None):
        """Begin a run, once for its id; the end is told to the record of the one above."""
        run = order.spec.run
        if run not in self.records:
            self.records[run] = Record(order)
            self.ends[run] = asyncio.ensure_future(self._through(self.records[run], above))
        return self.ends[run]

    async def again(self, run):
        """Go through the record of a run that has ended once more."""
        return await self.live(self.records[run], None, True)

    async def _through(self, record, above):
        while True:
            try:
                ended = await self.live(record, *self._deaths())
            except Killed:
                continue
            if not isinstance(ended, Order):
                if above is not None:
                    above.signal(ChildOver(self.clock(), ended))
                return ended
            record.order, record.happened = encode(ended), []
            record.executions += 1

    async def live(self, record, lives, keep):
        """One life of a run, from its record as far as that goes: its end, or the order with which it goes on."""
        order = decode(record.order, Order)
        texts = Texts(dict(order.contents))
        contents = Contents(texts)
        environment = Remembered(self, record, self.worker.performing(order, contents), lives, keep, self._most)
        try:
            return await execute(order, self.worker, environment, texts, contents)
        finally:
            environment.die()


class Remembered:
    """``Environment`` over a record."""

    def __init__(self, engine, record, performing, lives, keep, most):
        self._engine = engine
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
        left = None if until >= NO_TIME else max(until - self._engine.clock(), 0) / 1000
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

    def spawn(self, order):
        self._engine.begin(order, self._record)

    def cancel_child(self, run, cause):
        self._engine.records[run].signal(Cancel(self._engine.clock(), cause))

    def should_continue_as_new(self):
        return self._most is not None and self._count >= self._most
