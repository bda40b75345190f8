"""A worker's process on DBOS: takes runs from the queue, carries them out, goes on with those of workers that died.

A process serves one driver at a time, since DBOS is one in a process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer, EnqueueOptions, error
from sqlalchemy.exc import DBAPIError

from engine.core.vocabulary import SEMANTICS_VERSION
from engine.run.contents import Contents
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.timers import Clock, system_clock
from engine.runtimes.dbos.board import METADATA, Board
from engine.runtimes.dbos.database import APPLICATION, address, prepared, reached
from engine.runtimes.dbos.desk import Desk
from engine.runtimes.dbos.environment import Message, Steps
from engine.runtimes.execution import Worker, execute
from engine.runtimes.records import Cancel, ChildOver, End, Order, Report, decode, encode
from engine.runtimes.texts import Texts

QUEUE = "policy-runs"
WORKFLOW = "policy-run"
_AT_ONCE = 500
_ELSEWHERE = (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError, DBAPIError)
"""The run has not ended here: another worker has it by now, or will."""


class TakenOverError(RuntimeError):
    """Other workers have taken this one for dead and go on with its runs: it has to be started anew."""


@dataclass(frozen=True)
class Settings:
    """How a worker works. All workers of a database should have the same.

    ``concurrency``: runs at a time in this process, those that wait for people included, those below others not.
    ``lease_ms``: a worker that has not been heard of for so long is dead, and others go on with its runs. ``tick_ms``:
    how often it looks for signals. ``poll_ms``: how often it looks for new runs. ``log_level``: what DBOS logs.
    """

    concurrency: int = 200
    lease_ms: int = 10_000
    tick_ms: int = 100
    poll_ms: int = 100
    log_level: str = "CRITICAL"


def version_of(semantics: int) -> str:
    """DBOS's version of the application: a worker takes runs of its own semantics only.

    Set by us, since what DBOS makes of the workflow's source does not see the core.
    """
    return f"semantics-{semantics}"


def below(queue: str) -> str:
    """The queue of runs below others. It has no bound: those above them have a place already, and wait for them."""
    return f"{queue}-below"


def enqueued(order: Order, queue: str) -> EnqueueOptions:
    """How a run is put into a queue: once for its id."""
    return {
        "workflow_name": WORKFLOW,
        "queue_name": below(queue) if order.spec.parent else queue,
        "workflow_id": order.spec.run,
        "app_version": version_of(order.semantics),
    }


async def serve(
    driver: Driver,
    database: str,
    *,
    queue: str = QUEUE,
    settings: Settings = Settings(),
    ready: asyncio.Event | None = None,
    clock: Clock = system_clock,
) -> None:
    """Carry out runs until cancelled; what is in flight then is left to other workers, or the next start.

    ``queue`` is the name under which clients know the workers of this policy; several may share a database. ``ready``
    is set once runs are taken.

    Raises:
        RunError: ``database`` is no address, or this process serves runs already.
        RuntimeUnreachableError: there is no database.
        TakenOverError: see there.
    """
    global _here
    url = address(database)
    if _here is not None:
        raise RunError("this process serves runs already, and DBOS is one in a process: start another one")
    board = Board(await asyncio.to_thread(prepared, url, METADATA))
    here = _here = _Here(driver, url, board, queue, settings, clock)
    try:
        await here.serve(ready)
    finally:
        _here = None
        board.close()


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _run(text: str) -> str:
    assert _here is not None
    return await _here.run(text)


class _Here:
    """What this process serves."""

    def __init__(self, driver: Driver, url: str, board: Board, queue: str, settings: Settings, clock: Clock) -> None:
        self._worker = Worker(driver, clock)
        self._clock = clock
        self._url = url
        self._board = board
        self._queue = queue
        self._settings = settings
        self._name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        """Never used before: DBOS would give a process of the same name the runs of the one before."""
        self._going: set[asyncio.Task[object]] = set()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._desk = Desk(
            board,
            self._name,
            tick=settings.tick_ms / 1000,
            lease=settings.lease_ms / 1000,
            go_on=self._go_on,
            lost=self._taken_over,
        )
        self._client: DBOSClient | None = None

    async def serve(self, ready: asyncio.Event | None) -> None:
        with reached(self._url):
            await asyncio.to_thread(self._board.enter, self._name)
        try:
            await self._launch()
            self._desk.start()
            if ready is not None:
                ready.set()
            await self._lost
        finally:
            await asyncio.shield(self._end())

    async def _launch(self) -> None:
        settings = self._settings
        serializer = DBOSPortableJSONSerializer()
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": self._url,
            "executor_id": self._name,
            "application_version": version_of(SEMANTICS_VERSION),
            "serializer": serializer,
            "enable_otlp": False,
            "log_level": settings.log_level,
        }
        with reached(self._url):
            self._client = DBOSClient(
                system_database_url=self._url, serializer=serializer, application_name=APPLICATION
            )
            DBOS(config=config)
            DBOS.listen_queues([self._queue, below(self._queue)])
            DBOS.launch()  # in this thread: so workflows run in this event loop
            for queue, most in ((self._queue, settings.concurrency), (below(self._queue), None)):
                await DBOS.register_queue_async(
                    queue,
                    worker_concurrency=most,
                    polling_interval_sec=settings.poll_ms / 1000,
                    on_conflict="always_update",
                )

    async def _end(self) -> None:
        """Stop runs where they are, and only then let others have them."""
        for task in self._going:
            task.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)
        await asyncio.to_thread(self._desk.stop)
        # DBOS has put its own threads below this event loop, and ends them now.
        loop, threads = asyncio.get_running_loop(), ThreadPoolExecutor()
        await loop.run_in_executor(threads, DBOS.destroy)
        loop.set_default_executor(threads)
        if self._client is not None:
            self._client.destroy()
        await asyncio.to_thread(self._board.leave, self._name)

    def _taken_over(self) -> None:
        if not self._lost.done():
            self._lost.set_exception(
                TakenOverError(
                    f"worker {self._name} was not heard of for {self._settings.lease_ms} ms: others go on with its runs"
                )
            )

    def _go_on(self, worker: str) -> int:
        """Put the runs of a dead worker back into their queue, which may be one of another policy."""
        left = DBOS.list_workflows(
            status="PENDING", executor_id=worker, limit=_AT_ONCE, load_input=False, load_output=False
        )
        for run in left:
            DBOS.resume_workflow(run.workflow_id, queue_name=run.queue_name or self._queue)
        return len(left)

    # One run.

    async def run(self, text: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        self._going.add(task)
        try:
            order = decode(text, Order)
            try:
                end = await self._executed(order)
            except _ELSEWHERE:
                raise
            except Exception as exc:
                await self._told_above(order, Message(refused=str(exc) or type(exc).__name__))
                raise
            await self._told_above(order, Message(ChildOver(end.at, end)))
            self._desk.over(order.spec.run)
            return encode(end)
        finally:
            self._going.discard(task)

    async def _executed(self, order: Order) -> End:
        worker, run = self._worker, order.spec.run
        texts = Texts(dict(order.contents))
        contents = Contents(texts)
        performing = worker.performing(order, contents)
        known = await self._on_record(order, contents)
        steps = Steps(run, performing, self, lambda: worker.refusal(order), self._clock, known)
        try:
            end = await execute(order, worker, steps, texts, contents)
        finally:
            self._desk.parted(run)
            await steps.close()
        assert isinstance(end, End)  # there are no fresh executions here
        return end

    async def _on_record(self, order: Order, contents: Contents) -> int:
        """How many steps of a run are on record, if somebody follows it, who is not to be told everything again."""
        driver = self._worker.driver
        if driver.followers.of(None, self._worker.role(order), order.spec, contents.get) is None:
            return 0
        assert self._client is not None
        return len(await self._client.list_workflow_steps_async(order.spec.run))

    async def _told_above(self, order: Order, message: Message) -> None:
        """The run above learns how this one ended. Again, if this process dies now: it is one signal all the same."""
        if above := order.spec.parent:
            run = order.spec.run
            await asyncio.to_thread(self._board.send, above, f"child:{run}", encode(message))

    # Around its steps.

    def waits(self, run: str, report: Report, arrived: Callable[[int, Message], None]) -> None:
        self._desk.waits(run, report, arrived)

    def recorded(self, number: int) -> None:
        self._desk.recorded(number)

    async def spawn(self, order: Order) -> None:
        assert self._client is not None
        await self._client.enqueue_async(enqueued(order, self._queue), encode(order))

    async def cancel(self, run: str, cause: str) -> None:
        message = Message(Cancel(self._clock(), cause))
        await asyncio.to_thread(self._board.send, run, "cancel", encode(message))


_here: _Here | None = None
