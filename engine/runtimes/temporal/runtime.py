"""``TemporalRuntime``: runs on Temporal, for whoever wants some."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from engine.run.driver import Driver
from engine.run.errors import RunError
from engine.run.inputs import Input
from engine.run.result import RunResult
from engine.run.timers import system_clock
from engine.runtimes.listing import Listed
from engine.runtimes.protocol import RuntimeUnreachableError, answered, run_of
from engine.runtimes.records import Answered, Cancel, End, Order, Report
from engine.runtimes.starting import ordered
from engine.runtimes.temporal.connecting import ADDRESS, NAMESPACE, QUEUE, connected, reaching
from engine.runtimes.temporal.contents import opened
from engine.runtimes.temporal.listing import listed
from engine.runtimes.temporal.wire import WORKFLOW, Task
from engine.runtimes.temporal.worker import settled
from engine.runtimes.temporal.workflow import TASK_TIMEOUT

MOST: Final = 500
"""After so many things that happened a run goes on in a fresh execution: about 3,000 events of Temporal's record."""

HEARTBEAT_MS: Final = 5_000
_LOOKED_AT: Final = 200
"""Of so many runs in a list it is asked whether they are stuck."""

PATIENCE: Final = timedelta(seconds=10)
"""How long a worker has to say where a run stands."""

_ASKED_AGAIN_S: Final = 1.0


class TemporalRuntime:
    """``Runtime`` on Temporal. ``address`` is the server's (``HOST:PORT``), ``queue`` the task queue of the workers.

    ``driver`` has what the workers have: policy, clients' names, tools; without one no run can be begun. ``contents``
    and ``connection``: as for ``serve``. ``most``: after so many things that happened a run goes on in a fresh
    execution. ``heartbeat`` (ms): a worker of which nothing is heard for so long is held to be dead, and its jobs are
    begun again.
    """

    def __init__(
        self,
        driver: Driver | None,
        address: str = "",
        *,
        namespace: str = NAMESPACE,
        queue: str = QUEUE,
        contents: str | None = None,
        most: int = MOST,
        heartbeat: int = HEARTBEAT_MS,
        **connection: Any,
    ) -> None:
        self._driver = driver
        self._address = address or ADDRESS
        self._queue = queue
        self._most = most
        self._heartbeat = heartbeat
        self._shared = None if contents is None else opened(contents)
        self._connect = partial(connected, self._address, namespace, self._shared, **connection)
        self._connected: Client | None = None

    async def start(self, input: Input, *, run_id: str | None = None, thread: str | None = None) -> str:
        if self._driver is None:
            raise RunError("a run is begun under a policy: this runtime has no driver")
        order = ordered(self._driver, input, run_id=run_id, thread=thread)
        await self.begin(order)
        return order.spec.run

    async def begin(self, order: Order) -> None:
        """Begin the run of this order, once for its id."""
        client, run = await self._client(), order.spec.run
        try:
            with reaching(self._address):
                await client.start_workflow(
                    WORKFLOW,
                    Task(order, self._most, self._heartbeat),
                    id=run,
                    task_queue=self._queue,
                    task_timeout=TASK_TIMEOUT,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                )
        except WorkflowAlreadyStartedError:
            pass  # it has ended: the same run
        except RPCError as exc:
            raise RunError(f"run {run} cannot be begun: {exc}") from None

    async def result(self, run_id: str) -> RunResult:
        return (await self.end(run_id)).result

    async def end(self, run_id: str) -> End:
        """Wait for the end of a run, with its trail where the order asked for one. Raises as ``result`` does."""
        try:
            with reaching(self._address):
                end: End = await (await self._handle(run_id, End)).result()
                return end
        except WorkflowFailureError as exc:
            raise RunError(_why(run_id, exc)) from None
        except RPCError as exc:
            raise self._unknown(run_id, exc) from None

    async def peek(self, run_id: str) -> Report | None:
        _, report = await self._looked(run_id)
        return report

    async def cancel(self, run_id: str, cause: str = "user") -> None:
        await self._signal(run_id, "cancel", Cancel(system_clock(), cause))

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
        run = run_of(request_id)
        execution, report = await self._looked(run)
        asked = next((r for r in report.requests if r.id == request_id), None) if report is not None else None
        tools = self._driver.role.host.tools if self._driver is not None else None
        # To this execution alone: a later one counts its questions anew, and may ask something else by this id.
        if asked is None or not await self._signal(
            run, "answer", answered(asked, tools, granted, args, amount, result, by), execution
        ):
            raise RunError(f"run {run} does not ask {request_id} (any more)")

    async def runs(self) -> tuple[Listed, ...]:
        """The runs of the task queue that the server knows, the last begun first."""
        client, found = await self._client(), list[Listed]()
        only = f"WorkflowType = '{WORKFLOW}' AND TaskQueue = '{self._queue}'"
        try:
            with reaching(self._address):
                async for each in client.list_workflows(only):
                    if each.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                        found.append(await listed(client, each, look=len(found) < _LOOKED_AT))
        except RPCError as exc:
            raise RuntimeUnreachableError(f"the Temporal server at {self._address} lists no runs: {exc}") from None
        return tuple(found)

    async def aclose(self) -> None:
        self._connected = None
        if self._shared is not None:
            self._shared.close()
        await settled()

    # Inside.

    async def _client(self) -> Client:
        if self._connected is None:
            self._connected = await self._connect()
        return self._connected

    async def _handle(self, run_id: str, type: Any = None, execution: str | None = None) -> WorkflowHandle[Any, Any]:
        return (await self._client()).get_workflow_handle(run_id, run_id=execution, result_type=type)

    async def _looked(self, run_id: str) -> tuple[str | None, Report | None]:
        """The execution in which a run goes on, and where it stands there; see ``peek``."""
        try:
            with reaching(self._address):
                now = await (await self._handle(run_id)).describe()
                if now.status is not WorkflowExecutionStatus.RUNNING:
                    return None, None
                handle = await self._handle(run_id, execution=now.run_id)
                return now.run_id, await _reported(handle)
        except RuntimeUnreachableError as exc:
            raise RuntimeUnreachableError(
                f"run {run_id} does not say where it stands: no worker serves the task queue {self._queue!r}, or {exc}"
            ) from None
        except WorkflowQueryFailedError as exc:
            raise RunError(f"run {run_id} does not say where it stands: {exc}") from None
        except RPCError as exc:
            raise self._unknown(run_id, exc) from None

    async def _signal(self, run_id: str, name: str, signal: Cancel | Answered, execution: str | None = None) -> bool:
        """Tell a run something. Is it there to hear it? Raises ``RunError`` for an unknown run."""
        try:
            with reaching(self._address):
                await (await self._handle(run_id, execution=execution)).signal(name, signal)
        except RPCError as exc:
            if exc.status is not RPCStatusCode.NOT_FOUND or "already completed" not in str(exc):
                raise self._unknown(run_id, exc) from None
            return False
        return True

    def _unknown(self, run_id: str, exc: RPCError) -> RunError:
        if exc.status is RPCStatusCode.NOT_FOUND:
            return RunError(f"there is no run {run_id!r} at {self._address}")
        return RunError(f"run {run_id}: {exc}")


async def _reported(handle: WorkflowHandle[Any, Any]) -> Report:
    """Where a run stands. A worker whose work on it has been overtaken cannot say so, and lets go of the run: then
    another one is asked."""
    for _ in range(2):
        with contextlib.suppress(WorkflowQueryFailedError):
            return await _asked(handle)
        await asyncio.sleep(_ASKED_AGAIN_S)
    return await _asked(handle)


async def _asked(handle: WorkflowHandle[Any, Any]) -> Report:
    report: Report = await handle.query("report", result_type=Report, rpc_timeout=PATIENCE)
    return report


def _why(run_id: str, exc: WorkflowFailureError) -> str:
    cause = exc.cause
    if isinstance(cause, ApplicationError):
        return cause.message
    return f"run {run_id} was ended by Temporal: {cause}"


def open_runtime(driver: Driver | None, address: str = "", **options: Any) -> TemporalRuntime:
    """The runtime at an address (default: ``127.0.0.1:7233``). Without a ``driver`` no run can be begun."""
    return TemporalRuntime(driver, address, **options)
