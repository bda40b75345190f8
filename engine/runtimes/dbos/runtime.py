"""Runs on DBOS for whoever starts them and asks about them, from any process that reaches the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from dbos import DBOSClient, DBOSPortableJSONSerializer, WorkflowHandleAsync, WorkflowStatus, error
from sqlalchemy.exc import DBAPIError

from engine.core.state import Used
from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.inputs import Input
from engine.run.result import RunResult
from engine.run.timers import system_clock
from engine.runtimes.dbos.board import METADATA, Board
from engine.runtimes.dbos.database import APPLICATION, address, prepared, reached, shown
from engine.runtimes.dbos.environment import Message
from engine.runtimes.dbos.worker import QUEUE, WORKFLOW, enqueued
from engine.runtimes.listing import Listed
from engine.runtimes.protocol import RuntimeUnreachableError, answered, run_of
from engine.runtimes.records import Cancel, End, Order, Report, decode, encode
from engine.runtimes.starting import ordered

_STATUS = {"PENDING": "running", "ENQUEUED": "waiting", "DELAYED": "waiting", "SUCCESS": "ended"}


class DBOSRuntime:
    """``Runtime`` on the database of DBOS. ``driver`` makes orders; its model and tools are not called here.

    Without a ``driver`` no run can be begun. ``database``: see ``address``. ``queue`` is the name under which the
    workers of this policy serve. ``poll_ms``: how often the end of a run is looked for. ``patience_ms``: for how long
    the database may be away while somebody waits for a result.
    """

    def __init__(
        self,
        driver: Driver | None,
        database: str,
        *,
        queue: str = QUEUE,
        poll_ms: int = 100,
        patience_ms: int = 30_000,
    ) -> None:
        self._driver = driver
        self._queue = queue
        self._url = address(database)
        self._poll = poll_ms / 1000
        self._patience = patience_ms / 1000
        self._opened: tuple[DBOSClient, Board] | None = None
        self._opening = asyncio.Lock()

    async def start(self, input: Input, *, run_id: str | None = None, thread: str | None = None) -> str:
        """See ``Runtime``."""
        if self._driver is None:
            raise RunError("a run is begun under a policy: this runtime has no driver")
        return await self.submit(ordered(self._driver, input, run_id=run_id, thread=thread))

    async def submit(self, order: Order) -> str:
        """Begin the run of this order, once for its id, which is returned. Raises ``RuntimeUnreachableError``."""
        client, _ = await self._open()
        with reached(self._url):
            await client.enqueue_async(enqueued(order, self._queue), encode(order))
        return order.spec.run

    async def result(self, run_id: str) -> RunResult:
        """See ``Runtime``."""
        return (await self.end(run_id)).result

    async def end(self, run_id: str) -> End:
        """Wait for the end of a run, its trail included if the order asked for it. Raises as ``result`` does."""
        client, _ = await self._open()
        loop = asyncio.get_running_loop()
        away: float | None = None
        while True:
            try:
                handle: WorkflowHandleAsync[str] = await client.retrieve_workflow_async(run_id)
                return decode(await handle.get_result(polling_interval_sec=self._poll), End)
            except DBAPIError as exc:
                away = away or loop.time()
                if loop.time() - away > self._patience:
                    with reached(self._url):
                        raise exc
                await asyncio.sleep(self._poll)
            except error.DBOSNonExistentWorkflowError:
                raise self._unknown(run_id) from None
            except Exception as exc:
                raise RunError(str(exc)) from None

    async def peek(self, run_id: str) -> Report | None:
        """See ``Runtime``. What it shows is at most some ticks of the worker old."""
        status = await self._status(run_id)
        if status.status not in ("PENDING", "ENQUEUED", "DELAYED"):
            return None
        _, board = await self._open()
        with reached(self._url):
            text = await asyncio.to_thread(board.report, run_id)
        if text is None:
            return Report(run_id, "running", status.created_at or 0, Used())
        return decode(text, Report)

    async def cancel(self, run_id: str, cause: str = "user") -> None:
        """See ``Runtime``."""
        status = await self._status(run_id)
        if status.status in ("PENDING", "ENQUEUED", "DELAYED"):
            await self._send(run_id, "cancel", Message(Cancel(system_clock(), cause)))

    async def answer(
        self,
        request_id: str,
        granted: bool = True,
        *,
        args: Mapping[str, Any] | None = None,
        amount: int | None = None,
        result: Any = None,
        by: str = "",
    ) -> None:
        """See ``Runtime``."""
        run = run_of(request_id)
        report = await self.peek(run)
        request = next((each for each in report.requests if each.id == request_id), None) if report else None
        if request is None:
            raise RunError(f"nothing is asked as {request_id} (any more)")
        tools = None if self._driver is None else self._driver.role.host.tools
        message = Message(answered(request, tools, granted, args, amount, result, by))
        await self._send(run, f"answer:{request_id}", message)

    async def runs(self, limit: int = 100) -> list[Listed]:
        """The latest runs, newest first. Raises ``RuntimeUnreachableError``."""
        client, _ = await self._open()
        with reached(self._url):
            found = await client.list_workflows_async(
                name=WORKFLOW, limit=limit, sort_desc=True, load_input=False, load_output=True
            )
        return [_listed(each) for each in found]

    async def aclose(self) -> None:
        """See ``Runtime``."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await asyncio.to_thread(opened[0].destroy)
            opened[1].close()

    # Inside.

    async def _send(self, run: str, name: str, message: Message) -> None:
        _, board = await self._open()
        with reached(self._url):
            await asyncio.to_thread(board.send, run, name, encode(message))

    async def _status(self, run: str) -> WorkflowStatus:
        client, _ = await self._open()
        with reached(self._url):
            found = await client.list_workflows_async(workflow_ids=[run], load_input=False, load_output=False)
        if not found:
            raise self._unknown(run)
        return found[0]

    def _unknown(self, run: str) -> RunError:
        return RunError(f"there is no run {run} in {shown(self._url)}")

    async def _open(self) -> tuple[DBOSClient, Board]:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._connected)
            return self._opened

    def _connected(self) -> tuple[DBOSClient, Board]:
        board = Board(prepared(self._url, METADATA))
        with reached(self._url):
            client = DBOSClient(
                system_database_url=self._url,
                serializer=DBOSPortableJSONSerializer(),
                application_name=APPLICATION,
                retry_connection_errors=False,
            )
        return client, board


def _listed(status: WorkflowStatus) -> Listed:
    known = _STATUS.get(status.status or "", "failed")
    why = str(status.error) if status.error is not None else ""
    return Listed(status.workflow_id, known, status.created_at, why)  # type: ignore[arg-type]


__all__ = ["DBOSRuntime", "RuntimeUnreachableError"]
