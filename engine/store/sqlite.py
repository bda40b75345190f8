"""A store in one SQLite file: the default of a run that must survive its process.

A commit for each event (WAL, ``synchronous=NORMAL``): a killed process loses nothing that was
appended, a power failure may lose the last events, and what is left is always a prefix of each
run. Contents wait in memory for the event that names them and are committed with it. Several
processes may share a file, and several threads a store. It knows nothing about what events mean.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.core.canonical import content_ref, dumps
from engine.core.decisions import AnyDecision, End, decode_decision, encode_decision
from engine.core.events import AnyEvent, decode_event, encode_event
from engine.store.opening import connect, explained
from engine.store.protocol import JournalError, Recorded, RunRecord, Step
from engine.store.shared import digest_of, out_of_order, taken, unknown_content, unknown_run

_FIELDS: Final = ("run", "policy", "started", "fingerprint", "thread", "parent", "host", "semantics", "status")
_COLUMNS: Final = ", ".join((*_FIELDS, "used"))
_BEGIN_RUN: Final = f"INSERT INTO runs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_APPEND: Final = "INSERT INTO events (run, seq, event, decision, digest) VALUES (?, ?, ?, ?, ?)"
_KEEP: Final = "INSERT OR IGNORE INTO contents (ref, data) VALUES (?, ?)"

_Row = tuple[Any, ...]


class SqliteStore:
    """See ``Store``. Opening creates a file that is not there, unless ``read_only``.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is of another version.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._pending: dict[str, bytes] = {}
        self._db = connect(self.path, read_only)

    def begin(self, record: RunRecord) -> None:
        try:
            self._write([(_BEGIN_RUN, _row_of(record))])
        except sqlite3.IntegrityError:
            raise taken(record.run) from None

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        try:
            row = (run, seq, encode_event(event).decode(), encode_decision(decision).decode(), digest_of(decision))
        except (TypeError, ValueError, OverflowError) as error:
            raise JournalError(f"event {seq} of run {run!r} has no JSON form: {error}") from None
        statements: list[tuple[str, _Row]] = [(_APPEND, row)]
        if isinstance(decision, End):
            statements.append(_end_of(run, decision))
        try:
            self._write(statements)
        except sqlite3.IntegrityError:
            raise out_of_order(run, seq) from None

    def runs(self, thread: str | None = None) -> list[RunRecord]:
        only, values = ("", ()) if thread is None else ("WHERE thread = ?", (thread,))
        (rows,) = self._read((f"SELECT {_COLUMNS} FROM runs {only} ORDER BY number", values))
        return [self._record(row) for row in rows]

    def load(self, run: str) -> Recorded:
        records, stored = self._read(
            (f"SELECT {_COLUMNS} FROM runs WHERE run = ?", (run,)),
            ("SELECT seq, event, decision, digest FROM events WHERE run = ? ORDER BY seq", (run,)),
        )
        if not records:
            raise unknown_run(run)
        steps = tuple(self._step(run, number, row) for number, row in enumerate(stored))
        return Recorded(self._record(records[0]), steps)

    def put(self, data: bytes) -> str:
        ref = content_ref(data)
        with self._lock:
            self._pending[ref] = data
        return ref

    def get(self, ref: str) -> bytes:
        with self._lock:
            pending = self._pending.get(ref)
        if pending is not None:
            return pending
        (rows,) = self._read(("SELECT data FROM contents WHERE ref = ?", (ref,)))
        if not rows:
            raise unknown_content(ref)
        data: bytes = rows[0][0]
        if not isinstance(data, bytes) or content_ref(data) != ref:
            raise self._damaged(f"the content {ref}", "its bytes do not have its name")
        return data

    def close(self) -> None:
        with self._lock:
            try:
                if self._pending:
                    self._write([])
            finally:
                self._db.close()
                self._pending = {}

    def _write(self, statements: list[tuple[str, _Row]]) -> None:
        """All statements and the pending contents, or nothing. Integrity errors are the caller's to explain."""
        with self._lock:
            try:
                if len(statements) == 1 and not self._pending:
                    self._db.execute(*statements[0])
                else:
                    self._transact(statements)
            except sqlite3.IntegrityError:
                raise
            except (sqlite3.Error, OverflowError) as error:
                raise explained(self.path, error) from None

    def _transact(self, statements: list[tuple[str, _Row]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(_KEEP, self._pending.items())
            for statement in statements:
                self._db.execute(*statement)
            self._db.execute("COMMIT")
        except BaseException:
            # After some errors SQLite has rolled back by itself, and says so.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self._pending = {}

    def _read(self, *queries: tuple[str, _Row]) -> list[list[_Row]]:
        """The rows of each query, all of one moment, while other processes write."""
        with self._lock:
            try:
                self._db.execute("BEGIN")
                try:
                    return [self._db.execute(*query).fetchall() for query in queries]
                finally:
                    self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise explained(self.path, error) from None

    def _record(self, row: _Row) -> RunRecord:
        *plain, used = row
        try:
            fields = dict(zip(_FIELDS, plain, strict=True), used=None if used is None else msgspec.json.decode(used))
            return msgspec.convert(fields, RunRecord)
        except (TypeError, ValueError) as error:
            raise self._damaged(f"the record of run {row[0]!r}", str(error)) from None

    def _step(self, run: str, number: int, row: _Row) -> Step:
        seq, event, decision, digest = row
        what = f"event {number} of run {run!r}"
        if seq != number:
            raise self._damaged(what, "it is missing")
        try:
            step = Step(decode_event(event), decode_decision(decision), digest)
        except (TypeError, ValueError) as error:
            raise self._damaged(what, str(error)) from None
        if digest_of(step.decision) != digest:
            raise self._damaged(what, "its decision does not have its digest")
        return step

    def _damaged(self, what: str, why: str) -> JournalError:
        return JournalError(f"{self.path}: {what} is damaged ({why}); restore the file from a copy")


def _row_of(record: RunRecord) -> _Row:
    used = None if record.used is None else dumps(record.used).decode()
    return (*(getattr(record, name) for name in _FIELDS), used)


def _end_of(run: str, end: End) -> tuple[str, _Row]:
    outcome = end.outcome
    return "UPDATE runs SET status = ?, used = ? WHERE run = ?", (outcome.status, dumps(outcome.used).decode(), run)
