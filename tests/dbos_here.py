"""Workers on DBOS in processes of their own, and databases for them, for tests that kill either.

As a program it is such a worker: ``python tests/dbos_here.py WORLD URL DATABASE [OPTION]…``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from engine.runtimes.dbos import Settings

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
LEASE_MS = 700
"""A worker that is not heard of for so long is dead."""


@contextlib.contextmanager
def worker(world: str, url: str, database: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that serves this world, killed at the latest in the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    command = [sys.executable, str(Path(__file__)), world, url, database, *options]
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a worker, with everything that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@contextlib.asynccontextmanager
async def serving(world: str, url: str, database: str, **options: object) -> AsyncIterator[asyncio.Task[None]]:
    """A worker in this process."""
    from engine_worlds import driver_of

    from engine.runtimes.dbos import serve

    task = asyncio.ensure_future(serve(driver_of(world, url, **options), database, settings=_settings(20)))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _settings(concurrency: int, lease_ms: int = LEASE_MS) -> Settings:
    from engine.runtimes.dbos import Settings

    return Settings(concurrency=concurrency, lease_ms=lease_ms, tick_ms=20, poll_ms=20)


def unused(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """The address of a database that nobody has used."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/runs.sqlite"
    return request.getfixturevalue("postgres").create(f"runs_{uuid.uuid4().hex[:10]}")


def played(name: str, database: str, play: Callable[..., Awaitable[T]], delay: float = 0.0) -> T:
    """``play(server, driver, runtime)`` with the server of a world; what it gives."""
    from engine_worlds import WorldServer, driver_of

    from engine.runtimes.dbos import DBOSRuntime

    async def main(server: WorldServer) -> T:
        driver = driver_of(name, server.url)
        runtime = DBOSRuntime(driver, database, poll_ms=20)
        try:
            return await asyncio.wait_for(play(server, driver, runtime), 100)
        finally:
            await runtime.aclose()
            await driver.aclose()

    with WorldServer(name, delay=delay) as server:
        return asyncio.run(main(server))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("world")
    parser.add_argument("url")
    parser.add_argument("database")
    parser.add_argument("--other", action="store_true", help="under another policy")
    parser.add_argument("--shifted", action="store_true", help="deciding under other step numbers")
    parser.add_argument("--semantics", type=int, help="with a core of other semantics")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--lease", type=int, default=LEASE_MS)
    parser.add_argument("--log", help="a file for the decision log")
    asyncio.run(_served(parser.parse_args()))


async def _served(arguments: argparse.Namespace) -> None:
    from engine_worlds import driver_of, shift_steps

    from engine.runtimes import execution
    from engine.runtimes.dbos import serve, worker

    if arguments.shifted:
        shift_steps()
    if arguments.semantics:
        execution.SEMANTICS_VERSION = worker.SEMANTICS_VERSION = arguments.semantics
    driver = driver_of(arguments.world, arguments.url, other=arguments.other, log=arguments.log)
    await serve(driver, arguments.database, settings=_settings(arguments.concurrency, arguments.lease))


if __name__ == "__main__":
    main()
