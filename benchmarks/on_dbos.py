"""DBOS on SQLite and on PostgreSQL, measured. ``python -m benchmarks.on_dbos DATABASE`` is a worker.

The worker is a process of its own, as in production; what is timed is the way from submitting to the last result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions, WorkflowHandleAsync

from benchmarks.engine_work import PLAIN, driver, on_disk, started
from benchmarks.postgres import Server
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.runtimes.dbos import DBOSRuntime, Settings, serve
from engine.runtimes.dbos.database import APPLICATION, address
from engine.runtimes.dbos.worker import QUEUE, version_of
from engine.runtimes.starting import ordered

_POLL_MS, _SELDOM_MS = 20, 200
"""How often the end of a run is looked for: of one that is alone, and of each of many."""
_SETTINGS = Settings(concurrency=1_000, lease_ms=2_000, tick_ms=100, poll_ms=_POLL_MS)
_PLAIN = "plain-run"
_MIDDLE_S = 0.3
"""After so long twenty runs are in their middle."""


@DBOS.step(name="step")
async def _step(number: int) -> str:
    return PLAIN[number]


@DBOS.workflow(name=_PLAIN)
async def _plain() -> str:
    return [await _step(number) for number in range(len(PLAIN))][-1]


class _Going:
    """``Going`` on a database with one worker."""

    def __init__(self, database: str, files: Path, server: Server | None) -> None:
        self._database = database
        self._files = files
        self._server = server
        self._driver = driver()
        self._runtime = DBOSRuntime(self._driver, database, poll_ms=_SELDOM_MS)
        self._alone = DBOSRuntime(self._driver, database, poll_ms=_POLL_MS)
        self._client: DBOSClient | None = None
        self._worker = started("benchmarks.on_dbos", database)

    async def ours(self, names: list[str], at_once: int) -> None:
        runtime = self._alone if at_once == 1 else self._runtime

        async def one(name: str) -> None:
            await runtime.submit(ordered(self._driver, "What is the answer?", run_id=name))
            result = await runtime.result(name)
            assert result.ok, result

        await asyncio.gather(*map(one, names))

    async def plain(self, names: list[str], at_once: int) -> None:
        poll_ms = _POLL_MS if at_once == 1 else _SELDOM_MS
        await asyncio.gather(*(self._plain_one(name, poll_ms) for name in names))

    def processes(self) -> Iterable[int]:
        return [os.getpid(), self._worker.pid, *(self._server.processes() if self._server else ())]

    def stored(self) -> int:
        return on_disk(self._files)

    async def recovered(self, names: list[str]) -> Callable[[], Awaitable[None]]:
        for name in names:
            await self._runtime.submit(ordered(self._driver, "What is the answer?", run_id=name))
        await asyncio.sleep(_MIDDLE_S)
        dead, self._worker = self._worker, started("benchmarks.on_dbos", self._database)
        _kill(dead)

        async def ended() -> None:
            await asyncio.gather(*map(self._runtime.result, names))

        return ended

    async def close(self) -> None:
        await self._runtime.aclose()
        await self._alone.aclose()
        if self._client is not None:
            self._client.destroy()
        _kill(self._worker)

    async def _plain_one(self, name: str, poll_ms: int) -> None:
        if self._client is None:
            self._client = DBOSClient(
                system_database_url=address(self._database),
                serializer=DBOSPortableJSONSerializer(),
                application_name=APPLICATION,
            )
        options: EnqueueOptions = {
            "workflow_name": _PLAIN,
            "queue_name": QUEUE,
            "workflow_id": name,
            "app_version": version_of(SEMANTICS_VERSION),
        }
        handle: WorkflowHandleAsync[str] = await self._client.enqueue_async(options)
        assert await handle.get_result(polling_interval_sec=poll_ms / 1000) == PLAIN[-1]


class _Engine:
    """``Engine``, on either database."""

    def __init__(self, name: str, postgres: bool) -> None:
        self.name = name
        self._postgres = postgres

    def missing(self) -> str:
        return Server.missing() if self._postgres else ""

    @contextlib.asynccontextmanager
    async def going(self, folder: Path) -> AsyncIterator[_Going]:
        server = Server(folder / "postgres") if self._postgres else None
        try:
            database = server.create("runs") if server else f"sqlite:///{folder}/runs.sqlite"
            going = _Going(database, folder, server)
            try:
                yield going
            finally:
                await going.close()
        finally:
            if server:
                server.stop()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


ENGINES = (_Engine("DBOS, SQLite", False), _Engine("DBOS, PostgreSQL", True))

if __name__ == "__main__":
    asyncio.run(serve(driver(), sys.argv[1], settings=_SETTINGS))
