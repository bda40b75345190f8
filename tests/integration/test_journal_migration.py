"""A journal that an earlier release wrote: everything in it is kept, its runs go on, and nothing is half-migrated."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from privileges import nobody
from run_fakes import Model, assert_valid, says

from engine.core.events import RunStarted
from engine.core.messages import Message
from engine.core.policy import Policy
from engine.core.state import Used
from engine.core.step import compile
from engine.run.driver import Driver, RunError
from engine.run.result import RunResult
from engine.store import JournalError, RunRecord, opening, schema
from engine.store.compare import first_difference
from engine.store.sqlite import SqliteStore
from policy_lang.cli import main

VERSION_1 = Path(__file__).parent / "journals" / "version_1.sqlite"
"""Two runs, written by the first release with a journal: ``ended``, and ``killed`` while its tool was running."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(VERSION_1, tmp_path / "runs.journal"))


def version(path: Path) -> int:
    db = sqlite3.connect(path)
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return found


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the tables that version 1 had, in its columns."""
    columns = {
        "runs": "number, run, parent, thread, started, status, policy, fingerprint, semantics, host, used",
        "events": "run, seq, event, decision, digest",
        "contents": "ref, data",
    }
    db = sqlite3.connect(path)
    rows = {name: db.execute(f"SELECT {list_} FROM {name}").fetchall() for name, list_ in columns.items()}
    db.close()
    return rows


def refused(make: Callable[[], object]) -> str:
    with pytest.raises(JournalError) as caught:
        make()
    return str(caught.value)


async def search(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def driver(store: SqliteStore, model: Model) -> Driver:
    policy = Policy.model_validate_json(store.record("killed").policy)
    return Driver(policy, model, [search], system="Be brief.", journal=store)


def test_everything_is_kept(path: Path) -> None:
    assert version(path) == 1
    before = tables(path)
    store = SqliteStore(path)
    assert tables(path) == before
    assert version(path) == schema.SCHEMA_VERSION == 2
    ended, killed = store.runs("t")
    assert (ended.status, ended.used) == (
        "completed",
        Used(llm_calls=2, llm_attempts=2, tool_iterations=1, tool_calls=1, input_tokens=20, output_tokens=10),
    )
    assert (killed.status, killed.top, killed.root, killed.node, killed.agent, killed.depth) == (
        "running", "killed", None, None, "", 0,
    )  # fmt: skip
    assert store.requests() == store.leases() == []
    began = store.load("ended").steps[0].event
    assert isinstance(began, RunStarted)
    messages = [msgspec.json.decode(store.get(ref), type=Message) for ref in began.refs]
    assert [m.text for m in messages] == ["Be brief.", "first question"]
    store.close()
    SqliteStore(path).close()
    assert tables(path) == before


def test_the_recorded_decisions_are_still_taken(path: Path) -> None:
    store = SqliteStore(path)
    for record in store.runs():
        compiled = compile(Policy.model_validate_json(record.policy))
        assert compiled.fingerprint == record.fingerprint
        assert first_difference(compiled, store.load(record.run).steps) is None
    store.close()


def test_a_run_goes_on_where_the_earlier_release_was_killed(path: Path) -> None:
    store = SqliteStore(path)

    async def resume() -> RunResult:
        return await driver(store, Model(says("here you are"))).resume("killed")

    result = asyncio.run(resume())
    assert (result.status, result.text, result.used.llm_calls) == ("finalized", "here you are", 3)
    assert [m.text for m in result.messages if m.role == "tool"] == ["found a", "found dies"]
    assert_valid(result.messages)
    assert store.record("killed").used == result.used
    assert store.leases() == []
    store.close()


def test_reading_migrates_nothing(path: Path) -> None:
    before = path.read_bytes()
    store = SqliteStore(path, read_only=True)
    assert [(r.run, r.status, r.root, r.depth) for r in store.runs()] == [
        ("ended", "completed", None, 0),
        ("killed", "running", None, 0),
    ]
    assert [r.run for r in store.runs(tree="killed")] == [r.run for r in store.runs("t", tree="killed")] == ["killed"]
    assert len(store.load("killed").steps) == 8
    assert store.requests(open=True) == store.leases() == []
    store.close()
    assert main(["runs", "list", "--journal", str(path)]) == 0
    assert main(["runs", "show", "killed", "--journal", str(path)]) == 0
    assert main(["approvals", "list", "--journal", str(path)]) == 0
    assert main(["replay", str(path)]) == 0
    assert path.read_bytes() == before


def test_a_process_of_the_earlier_release_goes_on_writing(path: Path) -> None:
    old = sqlite3.connect(path, isolation_level=None)
    old.execute("SELECT * FROM runs").fetchall()
    store = SqliteStore(path)
    old.execute(
        "INSERT INTO runs (run, policy, started, fingerprint, thread, parent, host, semantics, status, used)"
        " VALUES ('old', '{}', 5, 'f', NULL, NULL, '{}', 1, 'running', NULL)"
    )
    old.execute(
        'INSERT INTO events VALUES (\'old\', 0, \'{"at":1,"event":"tick"}\', \'{"decision":"wait","wake_at":9}\', \'\')'
    )
    assert store.record("old") == RunRecord("old", "{}", 5, "f", semantics=1)
    assert len(store.load("old").steps) == 1
    old.close()
    store.close()


def test_a_file_that_somebody_writes_to_is_left_alone_and_said_to_be_locked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_BUSY_SECONDS", 0.05)
    before = tables(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "another process has kept it locked" in refused(lambda: SqliteStore(path))
    other.execute("ROLLBACK")
    other.close()
    assert (version(path), tables(path)) == (1, before)
    SqliteStore(path).close()
    assert (version(path), tables(path)) == (2, before)


@pytest.mark.parametrize("step", range(len(schema._FROM[1]) + 1))
def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    before = tables(path)
    statements = list(schema._FROM[1])
    statements.insert(step, "INSERT INTO nowhere VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_FROM", {1: statements})
        assert "no such table: nowhere" in refused(lambda: SqliteStore(path))
    assert (version(path), tables(path)) == (1, before)
    assert len(SqliteStore(path, read_only=True).runs()) == 2
    store = SqliteStore(path)
    assert (version(path), tables(path)) == (2, before)
    assert store.requests() == []
    store.close()


def test_many_processes_migrate_at_once(path: Path) -> None:
    before, failures = tables(path), []

    def open_it() -> None:
        try:
            store = SqliteStore(path)
            assert len(store.runs()) == 2
            store.close()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (version(path), tables(path)) == (2, before)


def test_a_file_that_may_not_be_written_is_not_migrated(path: Path) -> None:
    folder = path.parent
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        with nobody():
            said = refused(lambda: SqliteStore(path))
    finally:
        folder.chmod(0o755)
    assert str(path) in said
    assert version(path) == 1


def test_a_file_of_a_newer_release_is_not_touched(path: Path) -> None:
    SqliteStore(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 3")
    db.execute("ALTER TABLE runs ADD COLUMN more TEXT")
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = path.read_bytes()
    for read_only in (False, True):
        said = refused(lambda: SqliteStore(path, read_only=read_only))  # noqa: B023
        assert said.endswith("(format 3, this one knows 2); upgrade policy-lang to read it")
    for command in (["runs", "list"], ["runs", "cancel", "killed"], ["approvals", "list"]):
        assert main([*command, "--journal", str(path)]) == 2
    assert path.read_bytes() == before


def test_a_run_of_the_earlier_release_without_an_event_cannot_be_begun_again(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("DELETE FROM events WHERE run = 'killed'")
    db.commit()
    db.close()
    store = SqliteStore(path)

    async def resume() -> None:
        with pytest.raises(RunError, match="was killed before its first event: start it anew, with another id"):
            driver(store, Model()).resume("killed")

    asyncio.run(resume())
    assert store.leases() == []
    store.close()


def test_a_run_of_the_earlier_release_can_be_cancelled(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "cancel", "kil", "--journal", str(path), "--cause", "old"]) == 0
    assert capsys.readouterr().out == "run killed: cancelled\n"
    store = SqliteStore(path, read_only=True)
    assert store.record("killed").status == "cancelled"
    store.close()
