"""Restate, measured. ``python -m benchmarks.on_restate ADDRESS ADMIN LISTEN`` is a worker.

Server and worker are processes of their own; what is timed is the way from submitting to the last result.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import restate

from benchmarks.engine_work import PLAIN, driver, on_disk
from engine.runtimes.restate import RestateRuntime, serve
from engine.runtimes.starting import ordered

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from restate_server import Process, RestateServer, free_port, until, why_not

_MIDDLE_S = 0.2
"""After so long twenty runs are in their middle."""


def _plain() -> restate.Workflow:
    """The same eleven steps without a policy: a workflow that keeps what it has found, as Restate's pages show it."""
    workflow = restate.Workflow("Plain")

    async def step(number: int) -> str:
        return PLAIN[number]

    @workflow.main(name="run")
    async def run(context: restate.WorkflowContext, question: str) -> str:
        found = ""
        for number in range(len(PLAIN)):
            context.set("at", number)
            found = await context.run_typed(f"step {number}", step, restate.RunOptions(max_attempts=1), number=number)
        return found

    @workflow.handler(name="peek")
    async def peek(context: restate.WorkflowSharedContext) -> int | None:
        return await context.get("at", type_hint=int)

    return workflow


class _Worker(Process):
    def __init__(self, server: RestateServer) -> None:
        self._listen = f"127.0.0.1:{free_port()}"
        super().__init__(server.folder / f"worker-{self._listen.rpartition(':')[2]}.log")
        self._where = server.address, server.admin

    def again(self) -> None:
        """Start it, without waiting for it."""
        self.run(sys.executable, "-m", "benchmarks.on_restate", *self._where, self._listen)

    def start(self) -> None:
        self.again()
        until(lambda: "ready" in self.said(), self, 60)


class _Going:
    """``Going`` on a server with one worker."""

    def __init__(self, server: RestateServer) -> None:
        self._server = server
        self._driver = driver()
        self._runtime = RestateRuntime(self._driver, server.address, admin=server.admin)
        self._http = httpx.AsyncClient(base_url=server.address, timeout=120)
        self._worker = _Worker(server)
        self._worker.start()

    async def ours(self, names: list[str], at_once: int) -> None:
        async def one(name: str) -> None:
            await self._runtime.begin(ordered(self._driver, "What is the answer?", run_id=name))
            result = await self._runtime.result(name)
            assert result.ok, result

        await _some(one, names, at_once)

    async def plain(self, names: list[str], at_once: int) -> None:
        async def one(name: str) -> None:
            (await self._http.post(f"/Plain/{name}/run/send", json="What is the answer?")).raise_for_status()
            answer = await self._http.get(f"/restate/workflow/Plain/{name}/attach")
            assert answer.json() == PLAIN[-1]

        await _some(one, names, at_once)

    def processes(self) -> Iterable[int]:
        return os.getpid(), self._server.pid, self._worker.pid

    def stored(self) -> int:
        return on_disk(self._server.folder / "data")

    async def recovered(self, names: list[str]) -> Callable[[], Awaitable[None]]:
        orders = [ordered(self._driver, "What is the answer?", run_id=name) for name in names]
        beginning = asyncio.gather(*map(self._runtime.begin, orders))
        await asyncio.sleep(_MIDDLE_S)
        self._worker.kill()
        await beginning
        self._worker.again()  # at its own address: its supervisor brings it back

        async def ended() -> None:
            await asyncio.gather(*map(self._runtime.result, names))

        return ended

    async def close(self) -> None:
        await self._runtime.aclose()
        await self._http.aclose()
        self._worker.kill()


async def _some(one: Callable[[str], Awaitable[None]], names: list[str], at_once: int) -> None:
    slots = asyncio.Semaphore(at_once)

    async def in_turn(name: str) -> None:
        async with slots:
            await one(name)

    await asyncio.gather(*map(in_turn, names))


class _Engine:
    """``Engine``."""

    name = "Restate"

    def missing(self) -> str:
        return why_not()

    @contextlib.asynccontextmanager
    async def going(self, folder: Path) -> AsyncIterator[_Going]:
        with RestateServer(folder) as server:
            going = _Going(server)
            try:
                yield going
            finally:
                await going.close()


ENGINES = (_Engine(),)


async def _serve(address: str, admin: str, listen: str) -> None:
    ready = asyncio.Event()
    serving: asyncio.Future[Any] = asyncio.ensure_future(
        serve(driver(), address, admin=admin, listen=listen, most=0, more=(_plain(),), ready=ready)
    )
    await asyncio.wait({serving, asyncio.ensure_future(ready.wait())}, return_when=asyncio.FIRST_COMPLETED)
    print("ready", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
