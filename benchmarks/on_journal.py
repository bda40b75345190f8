"""Our own driver with a journal in SQLite, in one process: what engines are compared with.

``python -m benchmarks.on_journal FILE NAME…`` begins runs and waits for their ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

from benchmarks.engine_work import PLAIN, driver, on_disk, started
from engine.run.driver import Driver
from engine.store.protocol import LeaseError
from engine.store.sqlite import SqliteStore

_QUESTION = "What is the answer?"


class _Going:
    """``Going`` in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = SqliteStore(folder / "runs.journal")
        self._driver = _journaled(self._journal)
        self._table = sqlite3.connect(folder / "plain.sqlite", isolation_level=None)
        self._table.execute("pragma journal_mode=wal")
        self._table.execute("pragma synchronous=full")
        self._table.execute("create table step (run text, number int, given text, primary key (run, number))")

    async def ours(self, names: list[str], at_once: int) -> None:
        results = await asyncio.gather(*(self._driver.run(_QUESTION, run_id=name) for name in names))
        assert all(result.ok for result in results), results

    async def plain(self, names: list[str], at_once: int) -> None:
        await asyncio.gather(*map(self._plain_one, names))

    async def _plain_one(self, name: str) -> None:
        for number, given in enumerate(PLAIN):
            await asyncio.sleep(0)
            self._table.execute("insert into step values (?, ?, ?)", (name, number, given))

    def processes(self) -> Iterable[int]:
        return [os.getpid()]

    def stored(self) -> int:
        return on_disk(self._folder)

    async def recovered(self, names: list[str]) -> Callable[[], Awaitable[None]]:
        path = self._folder / "killed.journal"
        process = started("benchmarks.on_journal", str(path), *names)
        journal = SqliteStore(path)
        while len(begun := [record.run for record in journal.runs()]) < len(names):
            await asyncio.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

        async def ended() -> None:
            own = _journaled(journal)
            for name in begun:
                await _resumed(own, name)
            journal.close()

        return ended

    def close(self) -> None:
        self._journal.close()
        self._table.close()


def _journaled(journal: SqliteStore) -> Driver:
    return driver(journal)


async def _resumed(own: Driver, name: str) -> None:
    """Who drove it is dead, but its lease has to run out."""
    while True:
        try:
            await own.resume(name)
        except LeaseError:
            await asyncio.sleep(0.05)
        else:
            return


class _Engine:
    name = "driver with a journal, SQLite"

    def missing(self) -> str:
        return ""

    @contextlib.asynccontextmanager
    async def going(self, folder: Path) -> AsyncIterator[_Going]:
        going = _Going(folder)
        try:
            yield going
        finally:
            going.close()


ENGINES = (_Engine(),)


async def _begun(path: str, names: list[str]) -> None:
    own = _journaled(SqliteStore(path))
    await asyncio.gather(*(own.run(_QUESTION, run_id=name) for name in names))
    time.sleep(60)  # until somebody kills it


if __name__ == "__main__":
    asyncio.run(_begun(sys.argv[1], sys.argv[2:]))
