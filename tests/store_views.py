"""Stores as two processes see them, on a clock that a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store import MemoryStore, Store
from engine.store.sqlite import SqliteStore


class Place:
    """Where runs are kept. ``view()`` is the store of another process; memory has only the one. ``now`` is in ms."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.path = folder / "runs.journal"
        self.now = 1_700_000_000_000
        self._memory = MemoryStore(self.clock)
        self._opened: list[SqliteStore] = []

    def clock(self) -> int:
        return self.now

    def view(self) -> Store:
        if self.kind == "memory":
            return self._memory
        self._opened.append(SqliteStore(self.path, clock=self.clock))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A place of each kind."""
    made = Place(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Place]:
    """A place that several processes share."""
    made = Place("sqlite", tmp_path)
    yield made
    made.close()
