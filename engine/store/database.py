"""One connection to a journal's file, shared by threads: whole transactions, reads of one moment, errors in words."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from engine.store.opening import connect, explained
from engine.store.protocol import JournalError
from engine.store.schema import SCHEMA_VERSION, version_of

Row = tuple[Any, ...]
Statement = tuple[str, Row]

_KEEP: Final = "INSERT OR IGNORE INTO contents (ref, data) VALUES (?, ?)"


class Unchanged(Exception):
    """The first statement of a transaction changed nothing, so that nothing was written."""


class Database:
    """See the module. ``pending`` are contents that wait for the next transaction.

    ``current`` is false for a file of an older version, which is open to be read only.
    """

    def __init__(self, path: Path, read_only: bool) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.pending: dict[str, bytes] = {}
        self.connection = connect(path, read_only)
        self.current = version_of(self.connection) == SCHEMA_VERSION

    def write(self, sql: str, values: Row, more: Sequence[Statement] = ()) -> None:
        """A statement, those that belong to it, and the pending contents: all or nothing.

        The first one must change something, or ``Unchanged`` is raised. Integrity errors are the caller's to explain.
        """
        with self.lock:
            try:
                if more or self.pending:
                    self._transact(((sql, values), *more))
                elif not self.connection.execute(sql, values).rowcount:
                    raise Unchanged
            except sqlite3.IntegrityError:
                raise
            except (sqlite3.Error, OverflowError) as error:
                raise explained(self.path, error) from None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Reads and writes that belong together: no other writer in between, all or nothing."""
        with self.lock:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self.connection
                    self.connection.execute("COMMIT")
                except BaseException:
                    self._roll_back()
                    raise
            except (sqlite3.Error, OverflowError) as error:
                raise explained(self.path, error) from None

    def read(self, *queries: Statement) -> list[list[Row]]:
        """The rows of each query, all of one moment, while other processes write."""
        with self.lock:
            try:
                self.connection.execute("BEGIN")
                try:
                    return [self.connection.execute(*query).fetchall() for query in queries]
                finally:
                    self.connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise explained(self.path, error) from None

    def close(self) -> None:
        """Write the pending contents and let go of the file."""
        with self.lock:
            try:
                if self.pending:
                    self._flush()
            finally:
                self.connection.close()
                self.pending = {}

    def damaged(self, what: str, why: str) -> JournalError:
        return JournalError(f"{self.path}: {what} is damaged ({why}); restore the file from a copy")

    def _flush(self) -> None:
        try:
            self._transact(())
        except sqlite3.Error as error:
            raise explained(self.path, error) from None

    def _transact(self, statements: Sequence[Statement]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for number, statement in enumerate(statements):
                if not self.connection.execute(*statement).rowcount and not number:
                    raise Unchanged
            self.connection.executemany(_KEEP, self.pending.items())
            self.connection.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        self.pending = {}

    def _roll_back(self) -> None:
        # After some errors SQLite has rolled back by itself, and says so.
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute("ROLLBACK")
