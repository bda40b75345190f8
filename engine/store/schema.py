"""The tables of a journal's file, their version, and how a file of an older version becomes one of this.

A migration is one transaction: a process that dies in it leaves the file as it was. What an older release
that has the file open goes on writing stays valid.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SCHEMA_VERSION: Final = 2
"""Version of the tables, kept in the file; a file of a newer version is refused, an older one is migrated."""

APPLICATION: Final = 0x506F4C6A
"""Marks a file as a journal, in the place that SQLite's file header has for it."""

_REQUESTS_AND_LEASES: Final = (
    """CREATE TABLE requests (
        number INTEGER PRIMARY KEY,
        request TEXT NOT NULL UNIQUE,
        run TEXT NOT NULL,
        call TEXT NOT NULL,
        kind TEXT NOT NULL,
        asked TEXT NOT NULL,
        asked_at INTEGER NOT NULL,
        until INTEGER NOT NULL,
        answer TEXT,
        amount INTEGER NOT NULL DEFAULT 0,
        value TEXT,
        answered_by TEXT NOT NULL DEFAULT '',
        answered_at INTEGER NOT NULL DEFAULT 0,
        taken INTEGER NOT NULL DEFAULT 0
    )""",
    "CREATE INDEX requests_by_run ON requests (run)",
    "CREATE TABLE leases (key TEXT PRIMARY KEY, owner TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL)"
    " WITHOUT ROWID",
    "CREATE INDEX runs_by_root ON runs (root) WHERE root IS NOT NULL",
)

ACTS: Final = "CREATE TABLE IF NOT EXISTS acts (number INTEGER PRIMARY KEY, tree TEXT NOT NULL, act TEXT NOT NULL)"
"""What hosts did to trees that they drive by themselves. Made when the first of them does something: a file without it
is as whole as one with it, and releases that do not know it leave it alone, so it is no other format."""

_TREE_COLUMNS: Final = (
    "root TEXT",
    "node TEXT",
    "agent TEXT NOT NULL DEFAULT ''",
    "depth INTEGER NOT NULL DEFAULT 0",
)

_CREATE: Final = (
    f"""CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        run TEXT NOT NULL UNIQUE,
        parent TEXT,
        thread TEXT,
        started INTEGER NOT NULL,
        status TEXT NOT NULL,
        policy TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        semantics INTEGER NOT NULL,
        host TEXT NOT NULL,
        used TEXT,
        {", ".join(_TREE_COLUMNS)}
    )""",
    "CREATE INDEX runs_by_thread ON runs (thread) WHERE thread IS NOT NULL",
    """CREATE TABLE events (
        run TEXT NOT NULL,
        seq INTEGER NOT NULL,
        event TEXT NOT NULL,
        decision TEXT NOT NULL,
        digest TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID""",
    "CREATE TABLE contents (ref TEXT PRIMARY KEY, data BLOB NOT NULL)",
    *_REQUESTS_AND_LEASES,
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)

_FROM: Final = {
    1: (
        *(f"ALTER TABLE runs ADD COLUMN {column}" for column in _TREE_COLUMNS),
        *_REQUESTS_AND_LEASES,
        "PRAGMA user_version = 2",
    ),
}
"""What makes a file of a version one of the next."""


def version_of(db: sqlite3.Connection) -> int:
    """The version of an open journal; 0 before its tables are made."""
    return _number(db, "user_version")


def is_new(db: sqlite3.Connection) -> bool:
    """Is the file empty?"""
    return version_of(db) == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)


def is_journal(db: sqlite3.Connection) -> bool:
    """Is it a journal, of whatever version?"""
    return _number(db, "application_id") == APPLICATION


def create(db: sqlite3.Connection) -> None:
    """Make the tables in an empty file. Another process may be faster."""
    with _transaction(db):
        if is_new(db):
            for statement in _CREATE:
                db.execute(statement)


def migrate(db: sqlite3.Connection) -> None:
    """Bring a file of an older version to this one, whole or not at all. Another process may be faster."""
    with _transaction(db):
        while (version := version_of(db)) < SCHEMA_VERSION:
            for statement in _FROM[version]:
                db.execute(statement)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Everything or nothing, and no other writer in between."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # after some errors SQLite has rolled back by itself
            db.execute("ROLLBACK")
        raise


def _number(db: sqlite3.Connection, pragma: str) -> int:
    value: int = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value
