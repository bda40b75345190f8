"""The work that every durable engine is measured with, and what an engine has to offer to be measured.

A run is six model calls and five tools in between, all of which take no time: so what is measured is what an engine and
our adapter cost. ``PLAIN`` is the same eleven steps without a policy, with answers of the same size.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from engine.core.messages import Message, Reply, Request, ToolCall, Usage
from engine.core.policy import Finalize, Limit, Policy
from engine.run.driver import Driver
from engine.store import Store

CALLS, TOOLS = 6, 5
STEPS = CALLS + TOOLS
WAITING = "waiting"
"""The first call of a run whose id begins so takes ``WAITS_S``."""
WAITS_S = 8.0
ANSWER = "From what I have found: 42."
FOUND = "A page that was found, with some words on it. " * 4
PLAIN = tuple((ANSWER if number == STEPS - 1 else FOUND) for number in range(STEPS))
"""What each of the eleven steps gives, where there is no policy."""
_POLICY = Policy(
    name="measured",
    limits=(
        Limit(resource="llm_calls", max=CALLS, then=(Finalize(),)),
        Limit(resource="tool_iterations", max=TOOLS, then=(Finalize(),)),
    ),
)


class Instant:
    """A model that asks for a tool until it has five results, and takes no time."""

    name, model, wire = "main", "instant", "fake"

    async def complete(
        self, request: Request, *, on_delta: object = None, timeout: object = None, idempotency_key: str | None = None
    ) -> Reply:
        found = sum(message.role == "tool" for message in request.messages)
        if not found and idempotency_key and idempotency_key.startswith(WAITING):
            await asyncio.sleep(WAITS_S)
        if found >= TOOLS:
            return Reply(Message("assistant", ANSWER), "stop", Usage(100, 10))
        call = ToolCall(f"c{found}", "search", '{"q": "page"}')
        return Reply(Message("assistant", tool_calls=(call,)), "tool_calls", Usage(100, 10))

    async def aclose(self) -> None:
        pass


async def search(q: str) -> str:
    """Search for it."""
    return FOUND


def driver(journal: Store | None = None) -> Driver:
    """The driver of the measured runs; the same in every process."""
    return Driver(_POLICY, Instant(), (search,), journal=journal)


class Going(Protocol):
    """An engine with one worker, ready for runs. Each method returns when all runs have ended."""

    async def ours(self, names: list[str], at_once: int) -> None:
        """Runs of the driver under its policy, begun at the same time, ``at_once`` at a time where it can say so."""
        ...

    async def plain(self, names: list[str], at_once: int) -> None:
        """The same number of runs that only take the steps of ``PLAIN``, in the way the engine's own pages advise."""
        ...

    def processes(self) -> Iterable[int]:
        """The ids of all processes that the engine needs, servers and workers."""
        ...

    def stored(self) -> int:
        """Bytes on disk."""
        ...

    async def recovered(self, names: list[str]) -> Callable[[], Awaitable[None]]:
        """Begin these runs in a worker of its own, and kill -9 it in their middle, with another worker there.

        What is returned waits for the ends of all of them.
        """
        ...


class Engine(Protocol):
    """One engine. ``missing`` says what is not here, empty where it can be measured."""

    name: str

    def missing(self) -> str: ...

    def going(self, folder: Path) -> AbstractAsyncContextManager[Going]: ...


def memory(pids: Iterable[int]) -> int:
    """Bytes of memory, each shared page counted in part."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def processor(pids: Iterable[int]) -> float:
    """Seconds of processor time that these processes have had."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def on_disk(*paths: Path) -> int:
    """Bytes of files, and of all in folders."""
    files = [each for path in paths for each in ([path] if path.is_file() else path.rglob("*"))]
    return sum(each.stat().st_size for each in files if each.is_file())


def started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A worker in a process group of its own: ``python -m MODULE ARGUMENT…``."""
    return subprocess.Popen([sys.executable, "-m", module, *arguments], start_new_session=True)
