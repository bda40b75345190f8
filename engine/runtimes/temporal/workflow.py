"""A run as a workflow: the loop, driven by what Temporal's record says has happened.

The code here is gone through again after every crash, in Temporal's sandbox. It decides by no clock, and whatever it
waits for is in the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from msgspec import structs
from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ActivityCancellationType, ParentClosePolicy

from engine.core.state import NO_TIME, Used
from engine.run.contents import Contents
from engine.run.effects import settles
from engine.runtimes.environment import Job
from engine.runtimes.execution import Worker, execute
from engine.runtimes.records import Answered, Cancel, ChildOver, End, Ended, Happening, Order, Report, Timer
from engine.runtimes.temporal import here
from engine.runtimes.temporal.wire import (
    BEGIN,
    CLOCK,
    MISSING,
    PERFORM,
    REFUSED,
    SHUTDOWN,
    TOO_LARGE,
    WORKFLOW,
    Task,
    Work,
    bare,
    with_contents,
    work_of,
)
from engine.runtimes.texts import Texts

ONCE: Final = RetryPolicy(maximum_attempts=1)
"""A model's failure is an event, on which the policy decides. What fails otherwise is begun again by ``_carry``."""

LONG: Final = timedelta(days=365)
"""The time of a job runs inside it; that its worker is dead the heartbeat tells."""

LONGEST_PAUSE: Final = 60.0
TASK_TIMEOUT: Final = timedelta(seconds=5)
"""A worker that dies while it goes through a run is noticed after so long."""


class _Going:
    """A job that goes on. ``stopped``: it was asked to end. ``left``: nobody waits for its end any more."""

    __slots__ = ("handle", "left", "stopped", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.handle: workflow.ActivityHandle[Ended] | None = None
        self.stopped = False
        self.left = False

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            if self.handle is not None:
                self.handle.cancel()


class TemporalEnvironment:
    """``Environment`` in a workflow. ``inbox`` gets the signals; ``texts`` are the contents of the run."""

    def __init__(self, task: Task, texts: Texts, inbox: list[Happening]) -> None:
        self.report: Report | None = None
        self._task = task
        self._texts = texts
        self._order, text = bare(task.order)
        self._bare = {self._order: text}
        self._inbox = inbox
        self._going: dict[str, _Going] = {}
        self._children: dict[str, workflow.ChildWorkflowHandle[Any, End] | None] = {}
        self._unwanted: dict[str, str] = {}
        """Children that are to end and have not started yet, with the causes."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._armed = NO_TIME
        self._rung = 0
        """Up to when alarms have rung. What is due is told by this, not by a clock."""
        self._count = 0
        self._cancelled = False

    @property
    def replaying(self) -> bool:
        return workflow.unsafe.is_replaying()

    async def next(self, jobs: Sequence[Job], report: Report, until: int) -> Happening:
        self.report = report
        self._count += 1
        for job in jobs:
            self._going[job.key] = going = _Going(work_of(self._order, job))
            self._background(self._carry(job.key, going))
        while not self._inbox:
            if self._fault is not None:
                raise self._fault
            if until <= self._rung:
                return Timer(max(await _now(), until))
            self._arm(until)
            armed = self._armed
            try:
                await workflow.wait_condition(
                    lambda armed=armed: bool(self._inbox or self._fault or self._armed != armed)  # type: ignore[misc]
                )
            except asyncio.CancelledError:
                if self._cancelled or workflow.cancellation_reason() is None:
                    raise  # the worker lets go of the run
                # Somebody has used Temporal's own cancel: the run ends in order, as it does by ours.
                self._cancelled = True
                self._inbox.append(Cancel(await _now(), "user"))
        return self._inbox.pop(0)

    def cancel(self, key: str) -> None:
        if (going := self._going.get(key)) is not None:  # else its end is about to be given out
            going.stop()

    def leave(self, key: str) -> None:
        if (going := self._going.pop(key, None)) is not None:
            going.left = True
            going.stop()
        # The next job of this key must not get the end of this one.
        self._inbox[:] = [each for each in self._inbox if not (isinstance(each, Ended) and settles(each.event) == key)]

    def spawn(self, order: Order) -> None:
        self._background(self._child(order))

    def cancel_child(self, run: str, cause: str) -> None:
        if (handle := self._children.get(run)) is not None:
            self._background(self._tell(handle, cause))
        else:
            self._unwanted[run] = cause

    def should_continue_as_new(self) -> bool:
        return self._count >= self._task.most or workflow.info().is_continue_as_new_suggested()

    # Jobs.

    async def _carry(self, key: str, going: _Going) -> None:
        """A job to its end. One whose worker has died, or was stopped, is begun again with the same idempotency key."""
        work, pause = going.work, 0.0
        while not going.left:
            sent = structs.replace(work, stopped=going.stopped)
            going.handle = workflow.start_activity(
                PERFORM,
                sent,
                result_type=Ended,
                start_to_close_timeout=LONG,
                heartbeat_timeout=timedelta(milliseconds=self._task.heartbeat),
                retry_policy=ONCE,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                activity_id=key,
            )
            try:
                ended = await going.handle
            except ActivityError as exc:
                work, pause = self._again(work, exc, pause)
                going.handle = None
                if pause:
                    await workflow.sleep(pause)
            else:
                if not going.left:
                    del self._going[key]
                    self._inbox.append(ended)
                return

    def _again(self, work: Work, exc: ActivityError, pause: float) -> tuple[Work, float]:
        """How a job without an end is begun again, and after how many seconds."""
        why = exc.cause
        if isinstance(why, ApplicationError):
            if why.type == TOO_LARGE:
                raise ApplicationError(why.message, type=TOO_LARGE, non_retryable=True)
            if why.type == MISSING and not work.inline:
                return with_contents(work, self._texts.known | self._bare), 0.0
            if why.type != SHUTDOWN:
                return work, min(max(pause * 2, 1.0), LONGEST_PAUSE)
        return work, pause  # cancelled before it was begun, or its worker is gone

    # Agents below.

    async def _child(self, order: Order) -> None:
        run = order.spec.run
        self._children[run] = None
        handle = await workflow.start_child_workflow(
            WORKFLOW,
            structs.replace(self._task, order=order),
            id=run,
            result_type=End,
            task_timeout=TASK_TIMEOUT,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            # It ends by our own signal, in order, whatever becomes of this run.
            parent_close_policy=ParentClosePolicy.ABANDON,
        )
        self._children[run] = handle
        if (cause := self._unwanted.pop(run, None)) is not None:
            await self._tell(handle, cause)
        end = await handle
        self._inbox.append(ChildOver(end.at, end))

    async def _tell(self, handle: workflow.ChildWorkflowHandle[Any, End], cause: str) -> None:
        try:
            await handle.signal("cancel", Cancel(await _now(), cause))
        except ApplicationError:
            return  # it has ended meanwhile

    # Time, and what goes on beside.

    def _arm(self, until: int) -> None:
        """Have a timer that rings at ``until`` or before: too early costs less than one for each wait."""
        if until < self._armed:
            if self._alarm is not None:
                self._alarm.cancel()
            self._armed = until
            self._alarm = asyncio.create_task(self._ring(until - workflow.time_ns() // 1_000_000))

    async def _ring(self, ms: int) -> None:
        await workflow.sleep(max(ms, 1) / 1000)
        self._rung = max(self._rung, self._armed)
        self._armed, self._alarm = NO_TIME, None

    def _background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._watched(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watched(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as exc:  # nobody awaits a task in the background: the run has to hear of it
            self._fault = exc


async def _now() -> int:
    """The time (ms since 1970), as on record. That of a workflow's task may be another one when the record is gone
    through again, if no worker took the task up in time at first."""
    at: int = await workflow.execute_local_activity(
        CLOCK, result_type=int, start_to_close_timeout=timedelta(seconds=30)
    )
    return at


class Run:
    """What a run does and can be told, for the workflow that Temporal knows."""

    def __init__(self) -> None:
        self.inbox: list[Happening] = []
        self._environment: TemporalEnvironment | None = None
        self._began = Report("", "running", 0, Used())

    def worker(self, order: Order) -> Worker:
        """What this process brings to the run."""
        return here.worker(workflow.info().task_queue)

    def stands(self) -> Report:
        """Where the run stands."""
        return (self._environment and self._environment.report) or self._began

    async def executed(self, task: Task) -> End:
        """Drive the run to its end, or go on in a fresh execution."""
        order = task.order
        worker = self.worker(order)
        self._began = Report(order.spec.run, "running", order.spec.started, Used())
        worker.role(order)  # where this worker does not have the run's core it is left to others
        refusal = await workflow.execute_local_activity(
            BEGIN, order, result_type=str, start_to_close_timeout=timedelta(seconds=30)
        )
        if refusal:
            raise ApplicationError(refusal, type=REFUSED, non_retryable=True)
        texts = Texts(dict(order.contents))
        self._environment = TemporalEnvironment(task, texts, self.inbox)
        ended = await execute(order, worker, self._environment, texts, Contents(texts))
        if isinstance(ended, Order):
            # Answers are to questions of this execution, none of which is open any more.
            late = tuple(each for each in (*ended.held, *self.inbox) if isinstance(each, Cancel | ChildOver))
            workflow.continue_as_new(structs.replace(task, order=structs.replace(ended, held=late)))
        return ended


@workflow.defn(name=WORKFLOW)
class PolicyRun(Run):
    """A run, from its order to its end."""

    @workflow.run
    async def run(self, task: Task) -> End:
        return await self.executed(task)

    @workflow.signal
    def cancel(self, cancel: Cancel) -> None:
        self.inbox.append(cancel)

    @workflow.signal
    def answer(self, answered: Answered) -> None:
        self.inbox.append(answered)

    @workflow.query
    def report(self) -> Report:
        return self.stands()
