"""A store in one SQLite file: the default of a run that must survive its process.

A commit for each event (WAL, ``synchronous=NORMAL``): a killed process loses nothing that was
appended, a power failure may lose the last events, and what is left is always a prefix of each
run. Contents wait in memory for the event that names them and are committed with it. Several
processes may share a file, and several threads a store. Of what events mean it knows which end
a run, and which bring a person's answer.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from engine.core.canonical import content_ref, dumps
from engine.core.decisions import AnyDecision, End, decode_decision, encode_decision
from engine.core.events import AnyEvent, decode_event, encode_event
from engine.store import sqlite_leases, sqlite_requests
from engine.store.database import Database, Row, Statement, Unchanged
from engine.store.leases import lost
from engine.store.protocol import (
    RUNNING,
    SUSPENDED,
    Answer,
    Asked,
    JournalError,
    Lease,
    Recorded,
    RequestRecord,
    RunRecord,
    Step,
)
from engine.store.requests import SETTLING
from engine.store.schema import ACTS
from engine.store.shared import Clock, digest_of, out_of_order, taken, unknown_content, unknown_run, wall_clock

_FIRST: Final = ("run", "policy", "started", "fingerprint", "thread", "parent", "host", "semantics", "status")
_TREE: Final = ("root", "node", "agent", "depth")
_FIELDS: Final = (*_FIRST, *_TREE)
_COLUMNS: Final = ", ".join((*_FIELDS, "used"))
_OLD_COLUMNS: Final = f"{', '.join(_FIRST)}, NULL, NULL, '', 0, used"
"""The same from a file of version 1."""

_HELD: Final = "EXISTS (SELECT 1 FROM leases WHERE key = ? AND owner = ?)"
_PLACES: Final = ", ".join("?" * (len(_FIELDS) + 1))
_BEGIN_RUN: Final = f"INSERT INTO runs ({_COLUMNS}) SELECT {_PLACES}"
_APPEND: Final = "INSERT INTO events (run, seq, event, decision, digest) VALUES (?, ?, ?, ?, ?)"
_APPEND_HELD: Final = (
    "INSERT INTO events (run, seq, event, decision, digest) "
    "SELECT ?, ?, ?, ?, ? FROM leases WHERE key = ? AND owner = ?"  # a key has one lease at most
)
_AWAKE: Final = f"UPDATE runs SET status = '{RUNNING}' WHERE run = ? AND status = '{SUSPENDED}'"
_REBIND: Final = "UPDATE runs SET policy = ?, fingerprint = ?, host = ?, semantics = ? WHERE run = ?"
_ACT: Final = "INSERT INTO acts (tree, act) SELECT ?, ?"
_HAS_ACTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'acts'"
_ENDED: Final = "UPDATE runs SET status = ?, used = ? WHERE run = ?"


class SqliteStore:
    """See ``Store``. Opening creates a file that is not there, unless ``read_only``.

    ``clock`` says when requests are answered and leases run out; all processes that share a file must agree on it.

    Raises:
        JournalError: the file cannot be opened, is no journal, or is of a newer version.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, clock: Clock = wall_clock) -> None:
        self.path = Path(path)
        self._clock = clock
        self._database = Database(self.path, read_only)
        self._columns = _COLUMNS if self._database.current else _OLD_COLUMNS
        self._tops: dict[str, str] = {}
        """The run at the top of the tree, of runs that are none themselves and were begun or loaded here."""
        self._held: dict[str, str] = {}
        """Owner of each lease that was taken through this store last."""
        self._has_acts = False
        """Is there a table for what hosts do, as far as this store knows?"""
        self._asking: set[str] = set()
        """Runs that have asked for something, as far as this store knows: others need not be looked at."""

    # The journal.

    def begin(self, record: RunRecord) -> None:
        sql, values = _BEGIN_RUN, _row_of(record)
        owner = self._held.get(record.top)
        if owner is not None:
            sql, values = f"{sql} WHERE {_HELD}", (*values, record.top, owner)
        try:
            self._database.write(sql, values)
        except sqlite3.IntegrityError:
            raise taken(record.run) from None
        except Unchanged:
            raise self._lost(record.top) from None
        if record.root is not None:
            self._tops[record.run] = record.root

    def rebind(self, *records: RunRecord) -> None:
        record, owner = records[0], None
        try:
            with self._database.transaction() as database:
                for record in records:
                    sql = _REBIND
                    values: Row = (record.policy, record.fingerprint, record.host, record.semantics, record.run)
                    owner = self._held.get(record.top)
                    if owner is not None:
                        sql, values = f"{sql} AND {_HELD}", (*values, record.top, owner)
                    if not database.execute(sql, values).rowcount:
                        raise Unchanged
        except Unchanged:
            raise unknown_run(record.run) if owner is None else self._lost(record.top) from None

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        try:
            row: Row = (run, seq, encode_event(event).decode(), encode_decision(decision).decode(), digest_of(decision))
        except (TypeError, ValueError, OverflowError) as error:
            raise JournalError(f"event {seq} of run {run!r} has no JSON form: {error}") from None
        sql, ends = _APPEND, isinstance(decision, End)
        if self._held:
            top = self._tops.get(run, run)
            owner = self._held.get(top)
            if owner is not None:
                sql, row = _APPEND_HELD, (*row, top, owner)
        try:
            self._database.write(sql, row, self._noted(run, event, decision) if ends or run in self._asking else ())
        except sqlite3.IntegrityError:
            raise out_of_order(run, seq) from None
        except Unchanged:
            raise self._lost(self._tops.get(run, run)) from None
        if ends:
            self._tops.pop(run, None)
            self._asking.discard(run)

    def act(self, tree: str, act: str) -> None:
        if not self._has_acts:
            self._database.write(ACTS, ())
            self._has_acts = True
        sql = _ACT
        values: Row = (tree, act)
        owner = self._held.get(tree)
        if owner is not None:
            sql, values = f"{sql} WHERE {_HELD}", (*values, tree, owner)
        try:
            self._database.write(sql, values)
        except Unchanged:
            raise self._lost(tree) from None

    def acts(self, tree: str) -> list[str]:
        if not self._database.read((_HAS_ACTS, ()))[0]:
            return []
        (rows,) = self._database.read(("SELECT act FROM acts WHERE tree = ? ORDER BY number", (tree,)))
        return [row[0] for row in rows]

    def runs(self, thread: str | None = None, *, tree: str | None = None) -> list[RunRecord]:
        where: list[str] = []
        values: Row = ()
        if tree is not None:
            where.append("(run = ? OR root = ?)" if self._database.current else "run = coalesce(?, ?)")
            values = (tree, tree)
        if thread is not None:
            where.append("thread = ?")
            values = (*values, thread)
        only = f"WHERE {' AND '.join(where)}" if where else ""
        (rows,) = self._database.read((f"SELECT {self._columns} FROM runs {only} ORDER BY number", values))
        return [self._record(row) for row in rows]

    def record(self, run: str) -> RunRecord:
        (rows,) = self._database.read((f"SELECT {self._columns} FROM runs WHERE run = ?", (run,)))
        if not rows:
            raise unknown_run(run)
        return self._record(rows[0])

    def load(self, run: str) -> Recorded:
        records, stored, asked = self._database.read(
            (f"SELECT {self._columns} FROM runs WHERE run = ?", (run,)),
            ("SELECT seq, event, decision, digest FROM events WHERE run = ? ORDER BY seq", (run,)),
            sqlite_requests.has_asked(run) if self._database.current else ("SELECT 1 WHERE ?", (0,)),
        )
        if not records:
            raise unknown_run(run)
        steps = tuple(self._step(run, number, row) for number, row in enumerate(stored))
        record = self._record(records[0])
        if not record.ended:
            if record.root is not None:
                self._tops[run] = record.root
            if asked or record.status == SUSPENDED:
                self._asking.add(run)
        return Recorded(record, steps)

    # Contents.

    def put(self, data: bytes) -> str:
        ref = content_ref(data)
        with self._database.lock:
            self._database.pending[ref] = data
        return ref

    def get(self, ref: str) -> bytes:
        with self._database.lock:
            pending = self._database.pending.get(ref)
        if pending is not None:
            return pending
        (rows,) = self._database.read(("SELECT data FROM contents WHERE ref = ?", (ref,)))
        if not rows:
            raise unknown_content(ref)
        data: bytes = rows[0][0]
        if not isinstance(data, bytes) or content_ref(data) != ref:
            raise self._database.damaged(f"the content {ref}", "its bytes do not have its name")
        return data

    # Requests.

    def ask(self, run: str, asked: Sequence[Asked]) -> list[RequestRecord]:
        self._asking.add(run)
        top = self._tops.get(run, run)
        owner = self._held.get(top)
        return sqlite_requests.ask(self._database, run, asked, self._clock(), top, owner, self._record_of)

    def answer(self, request: str, answer: Answer) -> RequestRecord:
        return sqlite_requests.answer(self._database, request, answer, self._clock(), self._record_of)

    def requests(self, *, run: str | None = None, tree: str | None = None, open: bool = False) -> list[RequestRecord]:
        return sqlite_requests.listed(self._database, run, tree, self._clock() if open else None)

    # Leases.

    def acquire(self, key: str, owner: str, ttl: int) -> Lease:
        lease = sqlite_leases.acquire(self._database, key, owner, ttl, self._clock())
        self._held[key] = owner
        return lease

    def renew(self, lease: Lease, ttl: int) -> Lease:
        return sqlite_leases.renew(self._database, lease, ttl, self._clock())

    def release(self, lease: Lease) -> None:
        if self._held.get(lease.key) == lease.owner:
            del self._held[lease.key]
        sqlite_leases.release(self._database, lease)

    def leases(self) -> list[Lease]:
        return sqlite_leases.holding(self._database, self._clock())

    def close(self) -> None:
        self._database.close()

    # Inside.

    def _record_of(self, run: str) -> RunRecord:
        """The record of a run, inside a transaction."""
        row = self._database.connection.execute(f"SELECT {self._columns} FROM runs WHERE run = ?", (run,)).fetchone()
        if row is None:
            raise unknown_run(run)
        return self._record(row)

    def _lost(self, top: str) -> JournalError:
        return lost(top, sqlite_leases.current(self._database, top))

    def _noted(self, run: str, event: AnyEvent, decision: AnyDecision) -> list[Statement]:
        """What an event changes beside its own row."""
        noted: list[Statement] = []
        if run in self._asking and isinstance(event, SETTLING):
            noted += sqlite_requests.settled(run, event)
        if isinstance(decision, End):
            outcome = decision.outcome
            noted.append((_ENDED, (outcome.status, dumps(outcome.used).decode(), run)))
            if run in self._asking:
                noted.append(sqlite_requests.withdrawn(run))
        else:
            noted.append((_AWAKE, (run,)))
        return noted

    def _record(self, row: Row) -> RunRecord:
        *plain, used = row
        try:
            fields = dict(zip(_FIELDS, plain, strict=True), used=None if used is None else msgspec.json.decode(used))
            return msgspec.convert(fields, RunRecord)
        except (TypeError, ValueError) as error:
            raise self._database.damaged(f"the record of run {row[0]!r}", str(error)) from None

    def _step(self, run: str, number: int, row: Row) -> Step:
        seq, event, decision, digest = row
        what = f"event {number} of run {run!r}"
        if seq != number:
            raise self._database.damaged(what, "it is missing")
        try:
            step = Step(decode_event(event), decode_decision(decision), digest)
        except (TypeError, ValueError) as error:
            raise self._database.damaged(what, str(error)) from None
        if digest_of(step.decision) != digest:
            raise self._database.damaged(what, "its decision does not have its digest")
        return step


def _row_of(record: RunRecord) -> Row:
    used = None if record.used is None else dumps(record.used).decode()
    return (*(getattr(record, name) for name in _FIELDS), used)
