"""A process that writes a journal is killed at any moment; what is left is a prefix of each run, with its contents."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.store import RunRecord
from engine.store.sqlite import SqliteStore

WRITER = """
import sys
from engine.core import decisions as d, events as e
from engine.store import RunRecord
from engine.store.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
run = sys.argv[2]
store.begin(RunRecord(run, "{}", 0))
for seq in range(100_000):
    ref = store.put(f"{run}: content {seq} ".encode() * (1 + seq % 200))
    store.append(run, seq, e.ToolEnded(seq, "1.0", ref=ref), d.Wait(seq))
    print(seq, flush=True)
"""


def write(path: Path, run: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), run], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("seed", range(6))
def test_a_killed_writer_leaves_a_prefix(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "runs.journal"
    process = write(path, "r")
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0, 0.15))
    os.kill(process.pid, signal.SIGKILL)
    said = [line for line in process.stdout.read().split("\n") if line]
    process.wait(timeout=30)

    store = SqliteStore(path)
    steps = store.load("r").steps
    # What was reported as written is there; the one event after it may be.
    reported = int(said[-1]) + 1 if said else 1
    assert reported <= len(steps) <= reported + 1
    for seq, step in enumerate(steps):
        assert isinstance(step.event, e.ToolEnded)
        assert step.event.at == seq
        assert store.get(step.event.ref) == f"r: content {seq} ".encode() * (1 + seq % 200)
    store.append("r", len(steps), e.Tick(0), d.Wait(0))
    store.close()


def test_processes_may_share_a_file_that_none_of_them_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.journal"
    writers = [write(path, f"r{i}") for i in range(4)]
    try:
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(20):
                assert writer.stdout.readline() != ""
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate(timeout=30)
    store = SqliteStore(path, read_only=True)
    assert sorted(record.run for record in store.runs()) == ["r0", "r1", "r2", "r3"]
    for i in range(4):
        steps = store.load(f"r{i}").steps
        assert len(steps) >= 20
        assert [step.event.at for step in steps] == list(range(len(steps)))


def test_an_interrupted_transaction_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.journal"
    store = SqliteStore(path)
    store.begin(RunRecord("r", "{}", 0))
    ref = store.put(b"content")

    class Interrupting:
        """The connection, on which the commit is interrupted from the keyboard."""

        def __init__(self, db: object) -> None:
            self.db = db

        def __getattr__(self, name: str) -> object:
            return getattr(self.db, name)

        def execute(self, sql: str, *values: object) -> object:
            if sql == "COMMIT":
                raise KeyboardInterrupt
            return self.db.execute(sql, *values)  # type: ignore[attr-defined]

    with monkeypatch.context() as patch:
        patch.setattr(store._database, "connection", Interrupting(store._database.connection))
        with pytest.raises(KeyboardInterrupt):
            store.append("r", 0, e.Tick(0), d.Wait(0))
    assert store.load("r").steps == ()
    store.append("r", 0, e.Tick(0), d.Wait(0))
    store.close()
    assert hashlib.sha256(SqliteStore(path, read_only=True).get(ref)).hexdigest() == ref
