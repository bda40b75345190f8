"""How a journal's file is opened, and what its errors mean to a user."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from engine.store import schema
from engine.store.protocol import JournalError
from engine.store.schema import SCHEMA_VERSION

_BUSY_SECONDS: Final = 5.0
"""How long to wait for another process that is writing."""

_MEANING: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; make room, then resume the run",
    sqlite3.SQLITE_READONLY: "it may not be written; change its permissions, or name another file",
    sqlite3.SQLITE_BUSY: f"another process has kept it locked for {_BUSY_SECONDS:g} s; try again when that is done",
    sqlite3.SQLITE_LOCKED: "another connection has locked it; try again when that is done",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; its directory must exist and be writable",
    sqlite3.SQLITE_NOTADB: "it is no journal; name another file",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore it from a copy",
    sqlite3.SQLITE_IOERR: "reading or writing it failed; check the disk",
    sqlite3.SQLITE_TOOBIG: "a content is too large to be stored",
}


def explained(path: Path, error: Exception) -> JournalError:
    """What a SQLite error means, with the way out."""
    code = getattr(error, "sqlite_errorcode", None)
    meaning = None if code is None else _MEANING.get(code & 0xFF)
    return JournalError(f"{path}: {error}" if meaning is None else f"{path}: {meaning} ({error})")


def connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """An open journal. Raises ``JournalError`` if there is none to open.

    One of an older version is brought to this one, unless it is only read: then it stays as it is.
    """
    if not read_only:
        _touch(path)
    elif not path.is_file():
        raise JournalError(f"{path}: there is no such journal")
    try:
        return _opened(path, "mode=ro" if read_only else "mode=rw", read_only)
    except sqlite3.Error as error:
        if read_only and _on_its_own(path, error):
            with contextlib.suppress(sqlite3.Error):
                return _opened(path, "mode=ro&immutable=1", read_only)
        raise explained(path, error) from None


def _opened(path: Path, options: str, read_only: bool) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{options}"
    db = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path, read_only)
    except BaseException:
        db.close()
        raise
    return db


def _on_its_own(path: Path, error: sqlite3.Error) -> bool:
    """Can a file be read without the one that SQLite makes beside it, in a folder where nothing may be made?

    Only if nobody writes to it: then it would have its log beside it.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and not os.path.exists(f"{path}-wal")


def _touch(path: Path) -> None:
    """Create the file where there is none: conversations are private, so for its owner only.

    One that is there is not opened: closing it would take away the locks of every connection that this process has to
    it, and another process would throw away the log that they still write to.
    """
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o600))
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise JournalError(f"{path}: it cannot be opened ({reason}); name another file") from None


def _prepare(db: sqlite3.Connection, path: Path, read_only: bool) -> None:
    if schema.is_new(db):
        if read_only:
            raise JournalError(f"{path}: it is empty, no run was ever written to it")
        schema.create(db)
    if not schema.is_journal(db):
        raise JournalError(f"{path}: it is a database, but no journal; name another file")
    version = schema.version_of(db)
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"{path}: it was written by a newer release (format {version}, this one knows {SCHEMA_VERSION});"
            " upgrade policy-lang to read it"
        )
    if version < 1:
        raise JournalError(f"{path}: its format {version} is not known here, only 1 to {SCHEMA_VERSION}")
    if not read_only:
        if version < SCHEMA_VERSION:
            schema.migrate(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
