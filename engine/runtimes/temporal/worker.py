"""Serving runs on Temporal: a process that goes through them and carries their jobs out."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any, Final

import temporalio.worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from engine.run.driver import Driver
from engine.runtimes.execution import Worker
from engine.runtimes.temporal import here
from engine.runtimes.temporal.activities import Activities
from engine.runtimes.temporal.connecting import ADDRESS, NAMESPACE, QUEUE, connected
from engine.runtimes.temporal.contents import Known, opened
from engine.runtimes.temporal.workflow import PolicyRun

SHARED_MODULES: Final = ("engine", "msgspec", "httpx", "opentelemetry")
"""What the sandbox shares with the process: the worker's driver is made of it, and importing it anew takes longer than
most runs do. That all of it is as pure as the sandbox wants it, is a test: it shares nothing of ours.
"""

HEARTBEAT_EVERY: Final = timedelta(seconds=0.5)
STICKY: Final = timedelta(seconds=3)
"""A run whose worker does not take it up for so long is taken by another one."""


def sandbox() -> SandboxedWorkflowRunner:
    """Temporal's sandbox, as runs want it."""
    return SandboxedWorkflowRunner(SandboxRestrictions.default.with_passthrough_modules(*SHARED_MODULES))


async def serve(
    driver: Driver,
    address: str = "",
    *,
    namespace: str = NAMESPACE,
    queue: str = QUEUE,
    contents: str | None = None,
    jobs: int = 100,
    grace: float = 30.0,
    ready: asyncio.Event | None = None,
    **connection: Any,
) -> None:
    """Take runs from a task queue, until cancelled; jobs that go on then have ``grace`` seconds more.

    ``driver``: what they are made with; runs of another policy are refused.

    ``contents``: where all workers of the queue keep the contents of runs, a file or a ``postgresql://`` address;
    ``None``: each for itself, and runs send along what one does not have. ``jobs``: so many at a time. ``ready`` is set
    when runs are taken. ``connection``: see ``temporalio.client.Client.connect`` (``tls``, ``api_key``).

    Raises:
        RuntimeUnreachableError: there is no server.
        RunError: contents cannot be kept where they should be.
        ValueError: this process serves the queue already, with another driver.
    """
    shared = None if contents is None else opened(contents)
    worker = Worker(driver)
    try:
        client = await connected(address or ADDRESS, namespace, shared, **connection)
        activities = Activities(worker, Known(shared))
        here.serving(queue, worker)
        try:
            await _until_cancelled(
                temporalio.worker.Worker(
                    client,
                    task_queue=queue,
                    workflows=[PolicyRun],
                    activities=[activities.begin, activities.clock, activities.perform],
                    workflow_runner=sandbox(),
                    max_concurrent_activities=jobs,
                    graceful_shutdown_timeout=timedelta(seconds=grace),
                    sticky_queue_schedule_to_start_timeout=STICKY,
                    max_heartbeat_throttle_interval=HEARTBEAT_EVERY,
                    default_heartbeat_throttle_interval=HEARTBEAT_EVERY,
                ),
                grace,
                ready,
            )
        finally:
            here.gone(queue)
    finally:
        if shared is not None:
            shared.close()
        await settled()


async def _until_cancelled(worker: temporalio.worker.Worker, grace: float, ready: asyncio.Event | None) -> None:
    running = asyncio.ensure_future(worker.run())
    if ready is not None:
        ready.set()
    try:
        await asyncio.shield(running)
    finally:
        # A server that is away must not keep a worker from ending.
        await asyncio.wait({asyncio.ensure_future(worker.shutdown())}, timeout=grace + 5)


async def settled() -> None:
    """Wait until the threads of Temporal's library have let go: a process that ends before may crash at its exit."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.2)
