"""Carrying jobs out, each to its end as plain data: what a worker does, whichever engine has asked it to.

A job's time runs here: it ends at its deadline, or when it is stopped, whatever its function or client does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.core import events as e
from engine.core.decisions import Note
from engine.run import executions
from engine.run.agents import Role
from engine.run.contents import Contents
from engine.run.cutting import Cuts
from engine.run.deadlines import Cut
from engine.run.effects import ModelCall, ResolverRun, RunSpec, ToolRun
from engine.run.flight import Flight, Work
from engine.run.performer import Performer
from engine.run.timers import Clock, system_clock
from engine.runtimes.environment import Job
from engine.runtimes.records import Ended
from engine.runtimes.texts import Gathering

LONGEST_S = 24 * 3600.0
"""No timer of an event loop is set to more than a day."""


class Performing:
    """See the module; for one run. ``contents`` are those of the run."""

    def __init__(self, role: Role, spec: RunSpec, contents: Contents, clock: Clock = system_clock) -> None:
        self._role = role
        self._spec = spec
        self._contents = contents
        self._clock = clock
        self._stops: dict[str, asyncio.Future[None]] = {}

    def stop(self, key: str) -> None:
        """Ask a job to end. One that a thread works at ends by itself, or is left behind with ``leave``."""
        if (stop := self._stops.get(key)) is not None and not stop.done():
            stop.set_result(None)

    async def perform(self, job: Job) -> Ended:
        """Carry a job out. Raises for a fault of the engine's own only."""
        stop = self._stops[job.key] = asyncio.get_running_loop().create_future()
        gathered = Gathering(self._contents)
        notes: list[Note] = []
        performer = Performer(self._role.host, self._spec, gathered, self._clock, notes.append)
        flight = _flight(performer, job)
        if isinstance(job.effect, ResolverRun):
            flight.deadline = min(job.deadline, self._clock() + self._role.host.resolver_timeout)
        cuts = Cuts(_Known(job.cut), self._clock, notes.append, lambda _: None)
        try:
            event = await self._until_over(flight, performer, cuts, stop)
        finally:
            del self._stops[job.key]
        return Ended(event, gathered.new, tuple(notes), job.digest)

    async def _until_over(
        self, flight: Flight, performer: Performer, cuts: Cuts, stop: asyncio.Future[None]
    ) -> e.AnyEvent:
        task = asyncio.ensure_future(self._carried(flight, performer))
        try:
            while not task.done():
                left = (flight.deadline - self._clock()) / 1000
                if left <= 0:
                    return cuts.made(flight, "timed_out")
                if stop.done() and not _works_in_thread(flight):
                    return cuts.made(flight, "cancelled")
                awaited: set[asyncio.Future[Any]] = {task} if stop.done() else {task, stop}
                await asyncio.wait(awaited, timeout=min(left, LONGEST_S), return_when=asyncio.FIRST_COMPLETED)
            return task.result()
        finally:
            task.cancel()

    async def _carried(self, flight: Flight, performer: Performer) -> e.AnyEvent:
        effect = flight.effect
        if isinstance(effect, ToolRun):  # a further execution is due later
            while (left := effect.decision.not_before - self._clock()) > 0:
                await asyncio.sleep(min(left / 1000, LONGEST_S))
        return await performer.perform(effect, flight.work)


def not_begun(role: Role, spec: RunSpec, contents: Contents, now: Clock, job: Job) -> e.AnyEvent:
    """The end of a job that was cancelled before anybody had begun it."""
    performer = Performer(role.host, spec, contents, now, lambda _: None)
    return Cuts(_Known(job.cut), now, lambda _: None, lambda _: None).made(_flight(performer, job), "cancelled")


def _flight(performer: Performer, job: Job) -> Flight:
    effect = job.effect
    work: Work = None
    if isinstance(effect, ModelCall):
        work = performer.attempt(effect, None)
    elif isinstance(effect, ToolRun):
        work = performer.execution(effect)
    return Flight(effect, work, job.deadline, job.began)


def _works_in_thread(flight: Flight) -> bool:
    """A thread cannot be interrupted: it is told, and its end is waited for."""
    if not isinstance(flight.work, executions.Execution):
        return False
    flight.work.context.cancelled = True
    return flight.work.in_thread


class _Known:
    """The rule that cuts a job, as whoever decided on it has found it out."""

    def __init__(self, cut: Cut | None) -> None:
        self._cut = cut

    def of_tool(self, name: str, began: int | None, deadline: int, above: Cut | None = None) -> Cut | None:
        return self._cut

    def of_attempt(self, began: int | None, deadline: int, above: Cut | None = None) -> Cut:
        assert self._cut is not None  # an attempt at a model always has one
        return self._cut
