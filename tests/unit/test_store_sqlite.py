"""The SQLite store: its file, its versions, and what it says when something is wrong."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from privileges import nobody

from engine.core import decisions as d
from engine.core import events as e
from engine.store import JournalError, RunRecord
from engine.store import opening as opening_module
from engine.store.schema import SCHEMA_VERSION
from engine.store.sqlite import SqliteStore

RECORD = RunRecord("r", "{}", 0)
TICK: tuple[e.AnyEvent, d.AnyDecision] = (e.Tick(1), d.Wait(99))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.journal"


def filled(path: Path, events: int = 3) -> None:
    store = SqliteStore(path)
    store.begin(RECORD)
    for seq in range(events):
        store.put(b"content %d" % seq)
        store.append("r", seq, e.RetryDue(seq, "1"), d.Retry(seq, "1", 2, "main", 9))
    store.close()


def meddle(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(JournalError) as caught:
        make()
    return str(caught.value)


def test_the_file_is_for_its_owner_only_and_is_in_wal_mode(path: Path) -> None:
    filled(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    db.close()


def test_equal_contents_are_stored_once(path: Path) -> None:
    store = SqliteStore(path)
    store.begin(RECORD)
    for seq in range(3):
        store.put(b"same")
        store.append("r", seq, *TICK)
    store.close()
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM contents").fetchone() == (1,)
    db.close()


def test_reading_creates_nothing(path: Path) -> None:
    assert "there is no such journal" in refused(lambda: SqliteStore(path, read_only=True))
    assert not path.exists()
    path.touch()
    assert "it is empty, no run was ever written to it" in refused(lambda: SqliteStore(path, read_only=True))
    assert path.stat().st_size == 0


def test_a_journal_that_is_open_elsewhere_can_be_read(path: Path) -> None:
    writer = SqliteStore(path)
    writer.begin(RECORD)
    reader = SqliteStore(path, read_only=True)
    for seq in range(3):
        writer.append("r", seq, *TICK)
        assert len(reader.load("r").steps) == seq + 1
    assert "may not be written" in refused(lambda: reader.append("r", 3, *TICK))
    reader.close()
    writer.close()


def test_a_newer_version_is_refused(path: Path) -> None:
    filled(path)
    meddle(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    for read_only in (False, True):
        message = refused(lambda: SqliteStore(path, read_only=read_only))  # noqa: B023
        assert message == (
            f"{path}: it was written by a newer release (format 3, this one knows 2); upgrade policy-lang to read it"
        )


def test_other_files_are_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"policy support { }\n" * 100)
    assert "it is no journal; name another file" in refused(lambda: SqliteStore(path))
    assert path.read_bytes() == b"policy support { }\n" * 100
    path.unlink()
    meddle(path, "CREATE TABLE mine (a)")
    before = path.read_bytes()
    assert refused(lambda: SqliteStore(path)) == f"{path}: it is a database, but no journal; name another file"
    assert path.read_bytes() == before


def test_places_that_cannot_be_opened(tmp_path: Path) -> None:
    assert "no such file or directory); name another file" in refused(lambda: SqliteStore(tmp_path / "no" / "j"))
    assert "is a directory" in refused(lambda: SqliteStore(tmp_path))
    assert "there is no such journal" in refused(lambda: SqliteStore(tmp_path, read_only=True))
    assert "cannot be opened" in refused(lambda: SqliteStore(tmp_path / ("x" * 300)))


def test_names_that_mean_something_in_a_uri(tmp_path: Path) -> None:
    path = tmp_path / "a?b=c #%41.journal"
    filled(path)
    assert len(SqliteStore(path, read_only=True).load("r").steps) == 3
    assert path.exists()


def test_a_full_disk_leaves_nothing_half_written(path: Path) -> None:
    store = SqliteStore(path)
    store.begin(RECORD)
    store.append("r", 0, *TICK)
    (pages,) = store._database.connection.execute("PRAGMA page_count").fetchone()
    store._database.connection.execute(f"PRAGMA max_page_count = {pages}")
    ref = store.put(b"x" * 1_000_000)
    assert "the disk is full; make room, then resume the run" in refused(lambda: store.append("r", 1, *TICK))
    assert len(store.load("r").steps) == 1
    store._database.connection.execute("PRAGMA max_page_count = 1000000")
    store.append("r", 1, *TICK)
    store.close()
    again = SqliteStore(path, read_only=True)
    assert len(again.load("r").steps) == 2
    assert again.get(ref) == b"x" * 1_000_000


def test_a_lock_held_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "_BUSY_SECONDS", 0.05)
    store = SqliteStore(path)
    store.begin(RECORD)
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    assert "another process has kept it locked" in refused(lambda: store.append("r", 0, *TICK))
    ref = store.put(b"content")
    assert "another process has kept it locked" in refused(lambda: store.append("r", 0, *TICK))
    other.rollback()
    store.append("r", 0, *TICK)
    assert len(store.load("r").steps) == 1
    store.close()
    assert SqliteStore(path, read_only=True).get(ref) == b"content"
    other.close()


def test_a_file_that_may_only_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:  # in a place that nobody may enter too
        path = Path(folder) / "runs.journal"
        filled(path)
        os.chmod(folder, 0o555)
        path.chmod(0o444)
        with nobody():
            assert "may not be written" in refused(lambda: SqliteStore(path).append("r", 9, *TICK))
        os.chmod(folder, 0o755)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE events SET event = '{' WHERE seq = 1", "event 1 of run 'r' is damaged (Input data was truncated"),
        ("UPDATE events SET event = x'ff' WHERE seq = 1", "event 1 of run 'r' is damaged ("),
        ('UPDATE events SET event = \'{"event":"tea"}\' WHERE seq = 2', "event 2 of run 'r' is damaged (Invalid value"),
        ("UPDATE events SET event = 7 WHERE seq = 0", "event 0 of run 'r' is damaged ("),
        ("UPDATE events SET decision = '[]' WHERE seq = 1", "event 1 of run 'r' is damaged ("),
        (
            "UPDATE events SET decision = replace(decision, 'main', 'evil') WHERE seq = 1",
            "event 1 of run 'r' is damaged (its decision does not have its digest)",
        ),
        ("DELETE FROM events WHERE seq = 1", "event 1 of run 'r' is damaged (it is missing)"),
        ("DELETE FROM events WHERE seq = 0", "event 0 of run 'r' is damaged (it is missing)"),
        ("UPDATE runs SET started = 'noon'", "the record of run 'r' is damaged (Expected `int`, got `str`"),
        ("UPDATE runs SET used = '{'", "the record of run 'r' is damaged (Input data was truncated"),
        ("DROP TABLE events", "no such table: events"),
    ],
)
def test_damage_is_found_and_named(path: Path, statement: str, message: str) -> None:
    filled(path)
    meddle(path, statement)
    store = SqliteStore(path)
    said = refused(lambda: store.load("r"))
    assert said.startswith(str(path))
    assert message in said
    if "damaged" in message:
        assert said.endswith("restore the file from a copy")
    store.close()


def test_text_that_is_no_text(path: Path) -> None:
    filled(path)
    meddle(path, "UPDATE events SET event = CAST(x'fffe' AS TEXT) WHERE seq = 1")
    assert str(path) in refused(lambda: SqliteStore(path).load("r"))


def test_a_content_with_other_bytes_is_refused(path: Path) -> None:
    store = SqliteStore(path)
    ref = store.put(b"hello")
    store.close()
    meddle(path, "UPDATE contents SET data = x'00'")
    assert f"the content {ref} is damaged" in refused(lambda: SqliteStore(path).get(ref))


def test_pages_overwritten_by_something_else(path: Path) -> None:
    filled(path, 500)
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = os.urandom(len(data) - 4096)
    path.write_bytes(data)

    def read() -> None:
        SqliteStore(path).load("r")

    assert "it is damaged; restore it from a copy" in refused(read)


def test_what_has_no_json_form_is_refused_whole(path: Path) -> None:
    store = SqliteStore(path)
    store.begin(RECORD)
    bad = e.ToolRequested(1, "1.0", name="\ud800")
    assert "event 0 of run 'r' has no JSON form" in refused(lambda: store.append("r", 0, bad, d.Wait(9)))
    assert store.load("r").steps == ()
    huge = e.Tick(1 << 70)
    store.append("r", 0, huge, d.Wait(9))
    assert store.load("r").steps[0].event == huge


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.begin(RECORD)
    store.close()
    store.close()
    assert "closed" in refused(lambda: store.append("r", 0, *TICK))


def test_many_threads_share_a_store(path: Path) -> None:
    store = SqliteStore(path)
    failures: list[Exception] = []

    def drive(run: str) -> None:
        try:
            store.begin(RunRecord(run, "{}", 0))
            for seq in range(50):
                store.put(f"{run} {seq}".encode())
                store.append(run, seq, *TICK)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(f"r{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [len(store.load(f"r{i}").steps) for i in range(8)] == [50] * 8
    store.close()
    (count,) = sqlite3.connect(path).execute("SELECT count(*) FROM contents").fetchone()
    assert count == 400


def test_sqlite_is_imported_only_by_its_own_module() -> None:
    script = "import sys, engine.store; assert 'sqlite3' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_file_in_a_folder_where_nothing_may_be_made_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.journal"
        filled(path)
        os.chmod(folder, 0o555)
        path.chmod(0o444)
        with nobody():
            store = SqliteStore(path, read_only=True)
            assert len(store.load("r").steps) == 3
            assert "may not be written" in refused(lambda: store.append("r", 9, *TICK))
            store.close()
        os.chmod(folder, 0o755)
