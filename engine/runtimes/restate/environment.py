"""What Restate offers to one run: jobs, promises, timers and child runs as futures whose order its journal keeps."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import restate
from restate.serde import BytesSerde
from restate.server_context import restate_context_is_replaying

from engine.core.state import NO_TIME
from engine.run.timers import Clock
from engine.runtimes.environment import Job
from engine.runtimes.performing import Performing
from engine.runtimes.records import Cancel, Happening, Order, Report, Timer, decode, encode
from engine.runtimes.restate.addresses import CANCEL, answer_to

BYTES: Final = BytesSerde()
ONCE: Final = restate.RunOptions[bytes](serde=BYTES, max_attempts=1)
"""Retries are the policy's business: how a call has failed is an end like any other."""

REPORT: Final = "report"
"""What the run shows of itself, in the state of its key."""

Future = restate.RestateDurableFuture[bytes]


class RestateEnvironment:
    """``Environment`` for one execution of a run, the ``number``th (from 0).

    ``promised`` gives the future of a promise of the run, by name. After ``most`` happenings (0: never) the run wants a
    fresh execution.
    """

    def __init__(
        self,
        context: restate.ObjectContext,
        performing: Performing,
        promised: Callable[[str], Future],
        *,
        service: str,
        number: int,
        most: int,
        clock: Clock,
    ) -> None:
        self._context = context
        self._performing = performing
        self._promised = promised
        self._service = service
        self._number = number
        self._most = most
        self._clock = clock
        self._awaited: dict[str, Future] = {CANCEL: promised(CANCEL)}
        """Futures of what may happen: promises by their names, ``job KEY`` and ``run ID``."""
        self._timers: dict[int, restate.RestateDurableSleepFuture] = {}
        """By the time (ms) at which they ring. One that is not needed any more cannot be withdrawn."""
        self._stopped: set[str] = set()
        self._at = 0
        self._count = 0

    @property
    def replaying(self) -> bool:
        return restate_context_is_replaying.get()

    async def next(self, jobs: Sequence[Job], report: Report, until: int) -> Happening:
        self._count += 1
        self._at = report.at
        self._context.set(REPORT, f"{self._number} {encode(report)}".encode(), BYTES)
        for job in jobs:
            self._awaited[f"job {job.key}"] = self._context.run_typed(job.key, self._perform, ONCE, job)
        self._listen(report)
        timer = self._timer(until)
        futures: list[restate.RestateDurableFuture[Any]] = list(self._awaited.values())
        if timer is not None:
            futures.append(timer)
        done, _ = await restate.wait_completed(*futures)
        first = done[0]
        if first is timer:
            del self._timers[until]
            return Timer(until)
        key = next(key for key, future in self._awaited.items() if future is first)
        value = await self._awaited.pop(key)
        happened: Happening = decode(value, Happening)  # type: ignore[arg-type]
        if isinstance(happened, Cancel):  # a default is left out of JSON only where it is the very same text
            return Cancel(happened.at, sys.intern(happened.cause))
        return happened

    def cancel(self, key: str) -> None:
        self._stopped.add(key)
        self._performing.stop(key)

    def leave(self, key: str) -> None:
        self._awaited.pop(f"job {key}", None)
        self.cancel(key)

    def spawn(self, order: Order) -> None:
        run = order.spec.run
        call = self._context.generic_call(self._service, "run", encode(order).encode(), key=run)
        self._awaited[f"run {run}"] = call

    def cancel_child(self, run: str, cause: str) -> None:
        signal = f"{CANCEL}\n{encode(Cancel(self._at, cause))}".encode()
        self._context.generic_send(self._service, "signal", signal, key=run)

    def should_continue_as_new(self) -> bool:
        return 0 < self._most <= self._count

    # Inside.

    def _listen(self, report: Report) -> None:
        """People's answers to what is asked now are awaited, those to anything else no more."""
        names = [answer_to(self._number, request.id) for request in report.requests]
        for name in [name for name in self._awaited if name.startswith("answer ") and name not in names]:
            del self._awaited[name]
        for name in names:
            if name not in self._awaited:
                self._awaited[name] = self._promised(name)

    def _timer(self, until: int) -> restate.RestateDurableSleepFuture | None:
        if until >= NO_TIME:
            return None
        if until not in self._timers:
            left = max(until - self._clock(), 0)
            self._timers[until] = self._context.sleep(timedelta(milliseconds=left))
        return self._timers[until]

    async def _perform(self, job: Job) -> bytes:
        if job.key in self._stopped:  # it was in flight when an earlier process died
            asyncio.get_running_loop().call_soon(self._performing.stop, job.key)
        return encode(await self._performing.perform(job)).encode()
