"""Carrying the jobs of runs out in a worker process, for Temporal: with a sign of life all the while."""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from engine.core import events as e
from engine.core.decisions import Note
from engine.run.contents import Contents
from engine.run.effects import ModelCall, ToolRun
from engine.run.performer import Performer
from engine.run.timers import Clock, system_clock
from engine.runtimes.environment import Job
from engine.runtimes.execution import Worker
from engine.runtimes.performing import Performing
from engine.runtimes.records import Ended, Order, decode
from engine.runtimes.temporal.contents import LARGEST, Known
from engine.runtimes.temporal.wire import (
    BEGIN,
    CLOCK,
    MISSING,
    PERFORM,
    SHUTDOWN,
    TOO_LARGE,
    Work,
    bare,
    job_of,
    needed,
)
from engine.runtimes.texts import Gathering, Texts

BEATS = 4
"""So many signs of life are due before a worker is held to be dead."""


class Activities:
    """See the module. ``known`` are the contents that this worker can get at."""

    def __init__(self, worker: Worker, known: Known, clock: Clock = system_clock) -> None:
        self._worker = worker
        self._known = known
        self._clock = clock
        self._order = lru_cache(maxsize=256)(lambda text: decode(text, Order))

    @activity.defn(name=BEGIN)
    async def begin(self, order: Order) -> str:
        """Why a run is not taken here, empty if it is. What its jobs will name is at hand from here on."""
        if order.state is None and (why := self._worker.refusal(order)):
            return why
        ref, text = bare(order)
        await self._keep({**order.contents, ref: text})
        return ""

    @activity.defn(name=CLOCK)
    async def clock(self) -> int:
        """The time (ms since 1970)."""
        return self._clock()

    @activity.defn(name=PERFORM)
    async def perform(self, work: Work) -> Ended:
        """Carry a job out. It ends by itself, at its deadline, or when it is asked to: with an end in any case."""
        beating = asyncio.ensure_future(_beat())
        try:
            texts = await self._texts(work)
            order = self._order(texts.known[work.order])
            contents, job = Contents(texts), job_of(work)
            performing = self._worker.performing(order, contents)
            ended = self._unbegun(order, job, contents) if work.stopped else await _performed(performing, job)
            self._fits(ended, job)
            await self._keep(ended.contents)
            return ended
        finally:
            beating.cancel()

    def _unbegun(self, order: Order, job: Job, contents: Contents) -> Ended:
        """The end of a job that was asked to end while no worker had it."""
        gathered = Gathering(contents)
        performer = Performer(self._worker.role(order).host, order.spec, gathered, self._clock, _unheard)
        effect = job.effect
        event: e.AnyEvent
        if isinstance(effect, ModelCall):
            event = performer.attempt(effect, None).failed("aborted", "cancelled")
        elif isinstance(effect, ToolRun):
            event = performer.execution(effect).cut()
        else:
            event = e.Resolved(self._clock(), effect.decision.name, "failed")
        return Ended(event, gathered.new, (), job.digest)

    def _fits(self, ended: Ended, job: Job) -> None:
        size = sum(map(len, ended.contents.values()))
        if size > LARGEST and not self._known.lasting:
            raise ApplicationError(
                f"the end of {job.key} has {size:,} characters, and Temporal takes 2 MB: tell workers and whoever "
                "submits where `contents` are to be kept",
                type=TOO_LARGE,
                non_retryable=True,
            )

    async def _texts(self, work: Work) -> Texts:
        refs = list(needed(work))
        known = dict(work.inline)
        await self._keep(known)
        try:
            known |= await self._known.get(ref for ref in refs if ref not in known)
        except Exception:
            activity.logger.warning("the contents that workers share cannot be read", exc_info=True)
        if missing := [ref for ref in refs if ref not in known]:
            raise ApplicationError(
                f"this worker does not have {len(missing)} of the contents of the job: they are sent along now",
                type=MISSING,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            )
        return Texts(known)

    async def _keep(self, texts: dict[str, str]) -> None:
        try:
            await self._known.put(texts)
        except Exception:
            # They are in the run's record, from where they are sent to whoever needs them.
            activity.logger.warning("the contents that workers share cannot be written", exc_info=True)


async def _performed(performing: Performing, job: Job) -> Ended:
    task = asyncio.ensure_future(performing.perform(job))
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested and not details.worker_shutdown:
                performing.stop(job.key)
                continue
            task.cancel()
            with contextlib.suppress(BaseException):
                await task
            if details is not None and details.worker_shutdown:
                raise ApplicationError("the worker was stopped", type=SHUTDOWN, non_retryable=True) from None
            raise


def _unheard(note: Note) -> None:
    """What has not begun has nothing to note."""


async def _beat() -> None:
    """Say that this worker lives, for as long as it does: without it nobody would know for the time of the job."""
    patience = activity.info().heartbeat_timeout
    assert patience is not None
    while True:  # a short job is over before it has to
        await asyncio.sleep(patience.total_seconds() / BEATS)
        activity.heartbeat()
