"""What a journal says when its disk, its file or another process stands in the way: one clear error, nothing half done.

Real files throughout. After each fault the run goes on, and ends as one that nothing happened to.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from privileges import nobody
from run_fakes import Model, asks, limits, says

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import Request
from engine.core.messages import Message
from engine.core.transcript import fold, messages
from engine.run.driver import Driver
from engine.run.result import RunResult
from engine.store import Answer, Asked, JournalError, RunRecord, opening
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(JournalError) as caught:
        make()
    return str(caught.value)


def long(number: int) -> str:
    return f"answer {number} " + "x" * 3000


class World:
    """A model that asks for a tool four times and then answers, whoever asks it; ``ran`` are the keys of executions."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def model(self) -> Model:
        def reply(request):  # type: ignore[no-untyped-def]
            done = sum(m.role == "tool" for m in request.messages)
            return says("done") if done == 4 else asks(("look", json.dumps({"number": done})))

        return Model(then=reply)

    def driver(self, store: SqliteStore) -> Driver:
        async def look(number: int) -> str:
            self.ran.append(str(number))
            return long(number)

        return Driver(limits(llm_calls=9), self.model(), [look], journal=store)


def go_on(store: SqliteStore, world: World) -> RunResult:
    async def run() -> RunResult:
        known = [record.run for record in store.runs()]
        return await (world.driver(store).resume("r") if known else world.driver(store).start("hi", run_id="r"))

    return asyncio.run(run())


def assert_sound(store: SqliteStore) -> None:
    """What is there is a prefix of the run, with every content that its events name."""
    for record in store.runs():
        transcript = fold((step.event, step.decision) for step in store.load(record.run).steps)

        def content(ref: str) -> Message:
            import msgspec

            return msgspec.json.decode(store.get(ref), type=Message)

        messages(transcript.entries(), content)


def test_the_disk_fills_up_at_any_moment_and_the_run_goes_on_when_there_is_room(tmp_path: Path) -> None:
    whole = SqliteStore(tmp_path / "whole")
    expected = go_on(whole, World())
    whole.close()
    for more in range(40):
        store, world = SqliteStore(tmp_path / f"{more}"), World()
        db = store._database.connection
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + more}")
        try:
            go_on(store, world)
            assert more > 3
            store.close()
            break
        except JournalError as error:
            assert "the disk is full; make room, then resume the run" in str(error)  # noqa: PT017
        assert_sound(store)
        db.execute("PRAGMA max_page_count = 100000")
        result = go_on(store, world)
        assert (result, result.used) == (expected, expected.used)
        assert [m.text for m in result.messages] == [m.text for m in expected.messages]
        assert all(world.ran.count(key) <= 2 for key in world.ran)
        assert sum(world.ran.count(key) > 1 for key in set(world.ran)) <= 1
        store.close()
    else:
        pytest.fail("the run never had enough room")


FILLING = textwrap.dedent(
    """
    import asyncio, resource, sys
    sys.path.insert(0, {tests!r})
    sys.path.insert(0, {here!r})
    from test_journal_faults import World, go_on
    from engine.store import JournalError
    from engine.store.sqlite import SqliteStore

    store = SqliteStore(sys.argv[1])
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        go_on(store, World())
    except JournalError as error:
        print(error)
    else:
        print("ended")
    """
)


@pytest.mark.parametrize("room", [50_000, 90_000, 140_000])
def test_a_file_that_may_not_grow(tmp_path: Path, room: int) -> None:
    path = tmp_path / "runs.journal"
    code = FILLING.format(tests=str(ROOT / "tests"), here=str(Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(room)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{path}: reading or writing it failed; check the disk (")
    store = SqliteStore(path)
    assert_sound(store)
    assert go_on(store, World()).text == "done"
    store.close()


def filled(path: Path) -> None:
    """A journal with a run that is suspended, in the middle of its conversation, and driven by somebody."""
    store = SqliteStore(path)
    store.begin(RunRecord("r", "{}", 0))
    for seq in range(60):
        ref = store.put(f"content {seq} ".encode() * 40)
        store.append("r", seq, e.ToolEnded(seq, "1.0", ref=ref), d.Retry(seq, "1", 2, "main", 9))
    store.ask("r", [Asked(Request("1.0", "tool", "send"), "{}")])
    store.acquire("q", "somebody", 1 << 50)
    store.close()


def operations(store: SqliteStore) -> list[Callable[[], object]]:
    """Everything that writes."""
    return [
        lambda: store.begin(RunRecord("new", "{}", 0)),
        lambda: store.append("r", 60, e.Tick(1), d.Wait(9)),
        lambda: store.answer("r:1.0", Answer("granted")),
        lambda: store.ask("r", [Asked(Request("2.0", "tool", "send"), "{}")]),
        lambda: store.acquire("r", "me", 1000),
        lambda: store.acquire("q", "somebody", 1000),
        lambda: store.release(store.leases()[0]),
        lambda: store.renew(store.leases()[0], 1000),
    ]


def seen(path: Path) -> tuple[object, ...]:
    store = SqliteStore(path, read_only=True)
    found = (store.runs(), store.load("r").steps, store.requests(), store.leases())
    store.close()
    return found


def test_a_locked_file_is_waited_for_and_then_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    before = seen(path)
    monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.05)
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for operation in operations(store):
        said = refused(operation)
        assert said.startswith(f"{path}: another process has kept it locked")
    other.execute("ROLLBACK")
    assert seen(path) == before
    for operation in operations(store)[:5]:
        operation()
    other.close()
    store.close()


def test_a_file_that_is_only_read_takes_nothing(path: Path) -> None:
    filled(path)
    before = path.read_bytes()
    store = SqliteStore(path, read_only=True)
    for operation in operations(store):
        assert refused(operation).startswith(f"{path}: it may not be written; change its permissions")
    store.close()
    assert path.read_bytes() == before


def test_a_file_without_permission_is_named_by_every_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(path)
    before = path.read_bytes()
    path.parent.chmod(0o555)
    path.chmod(0o444)
    commands = (["runs", "cancel", "r"], ["approvals", "grant", "r:1.0"], ["approvals", "refuse", "r:1"])
    try:
        with nobody():
            codes = [main([*command, "--journal", str(path)]) for command in commands]
    finally:
        path.parent.chmod(0o755)
    told = capsys.readouterr().err.splitlines()
    assert codes == [2, 2, 2]
    assert len(told) == 3
    assert all(str(path) in line for line in told)
    assert path.read_bytes() == before


def test_garbage_on_any_page_is_an_error_or_no_matter(path: Path) -> None:
    filled(path)
    sound, expected = path.read_bytes(), seen(path)
    damaged = 0
    for page in range(len(sound) // 4096):
        data = bytearray(sound)
        data[page * 4096 : (page + 1) * 4096] = random.Random(page).randbytes(4096)
        path.write_bytes(data)
        try:
            found = seen(path)
            assert found[1] == expected[1], page
        except JournalError as error:
            damaged += 1
            assert str(error).startswith(f"{path}: "), page  # noqa: PT017
        assert path.read_bytes() == data
    assert damaged > 5
    path.write_bytes(sound)
    assert seen(path) == expected


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE requests SET asked = x'00'",
        "UPDATE requests SET kind = 'x', asked = '{}'",
        "UPDATE requests SET answer = 'perhaps'",
        "UPDATE requests SET asked_at = 'noon'",
        "DROP TABLE requests",
        "UPDATE runs SET depth = 'deep'",
        "UPDATE events SET event = '{' WHERE seq = 9",
    ],
)
def test_a_damaged_row_ends_no_command_in_a_traceback(
    path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    filled(path)
    db = sqlite3.connect(path)
    db.execute(damage)
    db.commit()
    db.close()
    commands = (["runs", "list"], ["runs", "show", "r"], ["runs", "cancel", "r"], ["approvals", "list", "--all"])
    codes = [main([*command, "--journal", str(path)]) for command in commands]
    told = capsys.readouterr().err.splitlines()
    assert 2 in codes
    assert all(line.startswith("policy ") for line in told)
    assert any(str(path) in line for line in told)


WRITER = textwrap.dedent(
    """
    import os, signal, sys
    from engine.core import decisions as d, events as e
    from engine.store import RunRecord
    from engine.store.sqlite import SqliteStore

    store = SqliteStore(sys.argv[1])
    store.begin(RunRecord("r", "{}", 0))
    for seq in range(6):
        store.append("r", seq, e.ToolEnded(seq, "1.0", ref=store.put(b"content %d" % seq)), d.Wait(9))
        if seq == 2:
            store._database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.kill(os.getpid(), signal.SIGKILL)
    """
)


def killed_writer(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert done.returncode == -signal.SIGKILL


def test_the_log_that_a_killed_process_left_beside_the_file_belongs_to_it(path: Path) -> None:
    killed_writer(path)
    store = SqliteStore(path, read_only=True)
    assert len(store.load("r").steps) == 6
    store.close()


def test_without_that_log_what_is_in_the_file_is_a_whole_beginning(path: Path) -> None:
    killed_writer(path)
    for beside in path.parent.glob("runs.journal-*"):
        beside.unlink()
    store = SqliteStore(path)
    steps = store.load("r").steps
    assert len(steps) == 3
    assert [store.get(step.event.ref) for step in steps] == [b"content %d" % seq for seq in range(3)]  # type: ignore[union-attr]
    store.append("r", 3, e.Tick(9), d.Wait(9))
    store.close()


def test_half_of_that_log_is_a_whole_beginning_too(path: Path) -> None:
    killed_writer(path)
    log = path.with_name("runs.journal-wal")
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    path.with_name("runs.journal-shm").unlink()
    store = SqliteStore(path)
    steps = store.load("r").steps
    assert 3 <= len(steps) < 6
    assert [store.get(step.event.ref) for step in steps] == [b"content %d" % seq for seq in range(len(steps))]  # type: ignore[union-attr]
    store.close()
