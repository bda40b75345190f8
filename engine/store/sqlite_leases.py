"""Leases in the table of a journal's file. Who may take one: ``engine.store.leases``."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Final

from engine.store.database import Database, Row, Unchanged
from engine.store.leases import granted, lost, renewed
from engine.store.protocol import Lease

_SELECT: Final = "SELECT key, owner, since, until FROM leases"
_TAKE_FREE: Final = "INSERT INTO leases (key, owner, since, until) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_STORE: Final = "INSERT OR REPLACE INTO leases (key, owner, since, until) VALUES (?, ?, ?, ?)"


def acquire(database: Database, key: str, owner: str, ttl: int, now: int) -> Lease:
    """See ``Leases.acquire``."""
    fresh = Lease(key, owner, now, now + ttl)
    try:
        database.write(_TAKE_FREE, _row_of(fresh))
    except Unchanged:
        return _take_over(database, key, owner, ttl, now)
    return fresh


def _take_over(database: Database, key: str, owner: str, ttl: int, now: int) -> Lease:
    with database.transaction() as db:
        lease = granted(_current(db, key), key, owner, ttl, now)
        _store(db, lease)
    return lease


def renew(database: Database, lease: Lease, ttl: int, now: int) -> Lease:
    """See ``Leases.renew``."""
    with database.transaction() as db:
        lease = renewed(_current(db, lease.key), lease, ttl, now)
        _store(db, lease)
    return lease


def release(database: Database, lease: Lease) -> None:
    """See ``Leases.release``."""
    with contextlib.suppress(Unchanged):
        database.write("DELETE FROM leases WHERE key = ? AND owner = ?", (lease.key, lease.owner))


def holding(database: Database, now: int) -> list[Lease]:
    """Those that hold now."""
    if not database.current:
        return []
    (rows,) = database.read((f"{_SELECT} WHERE until > ? ORDER BY key", (now,)))
    return [Lease(*row) for row in rows]


def current(database: Database, key: str) -> Lease | None:
    """The lease on a key, run out or not."""
    (rows,) = database.read((f"{_SELECT} WHERE key = ?", (key,)))
    return Lease(*rows[0]) if rows else None


def check(db: sqlite3.Connection, key: str, owner: str) -> None:
    """Inside a transaction: raise ``LeaseError`` if the lease is another owner's now."""
    now = _current(db, key)
    if now is None or now.owner != owner:
        raise lost(key, now)


def _current(db: sqlite3.Connection, key: str) -> Lease | None:
    row = db.execute(f"{_SELECT} WHERE key = ?", (key,)).fetchone()
    return None if row is None else Lease(*row)


def _store(db: sqlite3.Connection, lease: Lease) -> None:
    db.execute(_STORE, _row_of(lease))


def _row_of(lease: Lease) -> Row:
    return (lease.key, lease.owner, lease.since, lease.until)
