"""Requests and their answers in the tables of a journal's file. Which answer is accepted: ``engine.store.requests``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from engine.core import events as e
from engine.core.canonical import dumps
from engine.store import sqlite_leases
from engine.store.database import Database, Row, Statement
from engine.store.protocol import SUSPENDED, Answer, Asked, RequestRecord, RunRecord
from engine.store.requests import answered, brought, matched, may_ask, unknown_request

_COLUMNS: Final = "request, run, asked, asked_at, answer, amount, value, answered_by, answered_at, taken"
_INSERT: Final = "INSERT INTO requests (request, run, call, kind, asked, asked_at, until) VALUES (?, ?, ?, ?, ?, ?, ?)"
_ANSWER: Final = (
    "UPDATE requests SET answer = ?, amount = ?, value = ?, answered_by = ?, answered_at = ? WHERE request = ?"
)
_SETTLE: Final = (
    "UPDATE requests SET taken = 1, answer = coalesce(answer, ?), amount = iif(answer IS NULL, ?, amount),"
    " answered_at = iif(answer IS NULL, ?, answered_at) WHERE run = ? AND call = ? AND kind = ? AND taken = 0"
)
_OPEN: Final = (
    "answer IS NULL AND NOT taken AND until > ?"
    f" AND EXISTS (SELECT 1 FROM runs WHERE runs.run = requests.run AND status IN ('running', '{SUSPENDED}'))"
)


def has_asked(run: str) -> Statement:
    """A query with a row if the run waits for an answer, or has one that it has not taken up."""
    return "SELECT 1 FROM requests WHERE run = ? AND NOT taken LIMIT 1", (run,)


def settled(run: str, event: e.ApprovalGiven | e.ExtensionAnswered | e.ToolEnded) -> list[Statement]:
    """What an event that brings an answer changes."""
    kind, answer = brought(event)
    return [(_SETTLE, (answer.verdict, answer.amount, answer.at, run, event.id, kind))]


def withdrawn(run: str) -> Statement:
    """What a run that ends asks no more."""
    return "UPDATE requests SET taken = 1 WHERE run = ? AND taken = 0 AND answer IS NULL", (run,)


def ask(
    database: Database,
    run: str,
    asked: Sequence[Asked],
    now: int,
    top: str,
    owner: str | None,
    run_record: Callable[[str], RunRecord],
) -> list[RequestRecord]:
    """See ``Requests.ask``. ``owner`` is who must hold the lease on the tree of ``top``, if anybody must.

    ``run_record`` reads the record of a run, inside the transaction.
    """
    with database.transaction() as db:
        if owner is not None:
            sqlite_leases.check(db, top, owner)
        may_ask(run_record(run))
        kept = _select(database, db, "run = ?", (run,))
        found, gone = matched(run, kept, asked, now)
        known = {record.id for record in kept}
        db.executemany(_INSERT, [_row_of(record) for record in found if record.id not in known])
        db.executemany("UPDATE requests SET taken = 1 WHERE request = ?", [(record.id,) for record in gone])
        db.execute("UPDATE runs SET status = ? WHERE run = ?", (SUSPENDED, run))
    return found


def answer(
    database: Database, request: str, given: Answer, now: int, run_record: Callable[[str], RunRecord]
) -> RequestRecord:
    """See ``Requests.answer``. ``run_record`` reads the record of a run, inside the transaction."""
    with database.transaction() as db:
        found = _select(database, db, "request = ?", (request,))
        if not found:
            known = [row[0] for row in db.execute("SELECT request FROM requests ORDER BY number")]
            raise unknown_request(request, known)
        record = answered(found[0], run_record(found[0].run), given, now)
        kept = record.answer
        assert kept is not None
        db.execute(_ANSWER, (kept.verdict, kept.amount, kept.value, kept.by, kept.at, request))
    return record


def listed(database: Database, run: str | None, tree: str | None, open_at: int | None) -> list[RequestRecord]:
    """See ``Requests.requests``. ``open_at`` (ms): only those that can be answered then."""
    if not database.current:
        return []
    where, values = ["1"], list[Any]()
    if run is not None:
        where.append("run = ?")
        values.append(run)
    if tree is not None:
        where.append("run IN (SELECT run FROM runs WHERE run = ? OR root = ?)")
        values += [tree, tree]
    if open_at is not None:
        where.append(_OPEN)
        values.append(open_at)
    (rows,) = database.read(_query(" AND ".join(where), tuple(values)))
    return [_record(database, row) for row in rows]


def _select(database: Database, db: sqlite3.Connection, where: str, values: Row) -> list[RequestRecord]:
    return [_record(database, row) for row in db.execute(*_query(where, values)).fetchall()]


def _query(where: str, values: Row) -> Statement:
    return f"SELECT {_COLUMNS} FROM requests WHERE {where} ORDER BY number", values


def _row_of(record: RequestRecord) -> Row:
    request = record.asked.request
    asked = dumps(record.asked).decode()
    return (record.id, record.run, request.id, request.kind, asked, record.at, request.until)


def _record(database: Database, row: Row) -> RequestRecord:
    id, run, asked, at, verdict, amount, value, by, answered_at, taken = row
    try:
        given = {"verdict": verdict, "amount": amount, "value": value, "by": by, "at": answered_at}
        fields = {
            "id": id,
            "run": run,
            "asked": msgspec.json.decode(asked),
            "at": at,
            "answer": None if verdict is None else given,
            "taken": bool(taken),
        }
        return msgspec.convert(fields, RequestRecord)
    except (TypeError, ValueError) as error:
        raise database.damaged(f"request {id!r}", str(error)) from None
