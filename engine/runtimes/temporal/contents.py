"""The contents that the workers of a task queue share: by reference, in a SQLite file or in PostgreSQL.

They are a saving, not the truth: what a worker does not find here the run has, and sends along. Only payloads that are
too large for Temporal's own record are nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ExternalStorage,
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from engine.core.canonical import content_ref
from engine.run.errors import RunError

LARGE: Final = 128 * 1024
"""Payloads of so many bytes are kept here instead of in Temporal's record, which refuses those over 2 MB."""

LARGEST: Final = 1_900_000
"""More characters of one result Temporal's record does not take."""

_CACHED: Final = 64 * 1024 * 1024
"""So many characters are kept in memory."""

_AT_ONCE: Final = 500


class SharedContents(Protocol):
    """Contents by reference; from any thread. Raises whatever its database does when that is not there."""

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Keep these for all workers. Safe when it returns."""
        ...

    def get(self, refs: Sequence[str]) -> dict[str, bytes]:
        """Those that are there."""
        ...

    def close(self) -> None: ...


class SqliteContents:
    """A file, for workers on one machine."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE IF NOT EXISTS contents (ref TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID")

    def put(self, contents: Mapping[str, bytes]) -> None:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.executemany("INSERT OR IGNORE INTO contents (ref, data) VALUES (?, ?)", contents.items())
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def get(self, refs: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with self._lock:
            for start in range(0, len(refs), _AT_ONCE):
                some = refs[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                found.update(self._db.execute(f"SELECT ref, data FROM contents WHERE ref IN ({marks})", some))
        return found

    def close(self) -> None:
        with self._lock:
            self._db.close()


class PostgresContents:
    """A table of a PostgreSQL database, for workers on several machines. A lost connection is made anew."""

    def __init__(self, url: str) -> None:
        import psycopg  # an extra

        self._lock = threading.Lock()
        self._lost = psycopg.OperationalError
        self._made = partial(psycopg.connect, url, autocommit=True)
        self._db = self._made()
        # Two workers that begin at once: the second one waits, where CREATE TABLE alone would fail.
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(7431902211)")
            self._db.execute("CREATE TABLE IF NOT EXISTS policy_contents (ref text PRIMARY KEY, data bytea NOT NULL)")

    def put(self, contents: Mapping[str, bytes]) -> None:
        refs, data = list(contents), list(contents.values())
        self._execute(
            "INSERT INTO policy_contents SELECT * FROM unnest(%s::text[], %s::bytea[]) ON CONFLICT DO NOTHING",
            (refs, data),
        )

    def get(self, refs: Sequence[str]) -> dict[str, bytes]:
        rows = self._execute("SELECT ref, data FROM policy_contents WHERE ref = ANY(%s)", (list(refs),)).fetchall()
        return {ref: bytes(data) for ref, data in rows}

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def _execute(self, sql: Any, values: tuple[Any, ...]) -> Any:
        with self._lock:
            try:
                return self._db.execute(sql, values)
            except self._lost:
                self._db.close()
                self._db = self._made()
                return self._db.execute(sql, values)


def opened(where: str) -> SharedContents:
    """The contents at a path or a ``postgresql://`` address; a file that is not there is made, for its owner only.

    Raises:
        RunError: they cannot be opened.
    """
    if where.startswith(("postgresql://", "postgres://")):
        try:
            return PostgresContents(where)
        except ModuleNotFoundError:
            raise RunError("contents in PostgreSQL need psycopg: pip install 'psycopg[binary]>=3.2'") from None
        except Exception as exc:  # psycopg's own, which only this place imports
            shown = where.rpartition("@")[2]  # an address may have a password in it
            raise RunError(f"contents at {shown}: {str(exc).splitlines()[0]}") from None
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(where, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o600))
        return SqliteContents(Path(where))
    except (OSError, sqlite3.Error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise RunError(f"{where}: contents cannot be kept there ({reason.lower()}); name another file") from None


class Known:
    """Contents of all runs that this worker has to do with: what it has seen lately, and what is shared."""

    def __init__(self, shared: SharedContents | None = None) -> None:
        self._shared = shared
        self.lasting = shared is not None
        """Are they more than this process's, so that payloads of any size have a place?"""
        self._lately: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    async def get(self, refs: Iterable[str]) -> dict[str, str]:
        """Those that are to be had. A database that does not answer has none."""
        found, asked = dict[str, str](), list[str]()
        for ref in dict.fromkeys(refs):
            text = self._lately.get(ref)
            if text is None:
                asked.append(ref)
            else:
                self._lately.move_to_end(ref)
                found[ref] = text
        if asked and self._shared is not None:
            shared = {ref: data.decode() for ref, data in (await asyncio.to_thread(self._shared.get, asked)).items()}
            self._remember(shared)
            found |= shared
        return found

    async def put(self, texts: Mapping[str, str]) -> None:
        """Keep these here, and for the other workers."""
        new = {ref: text for ref, text in texts.items() if ref not in self._lately}
        if not new:
            return
        self._remember(new)
        if self._shared is not None:
            await asyncio.to_thread(self._shared.put, {ref: text.encode() for ref, text in new.items()})

    def _remember(self, texts: Mapping[str, str]) -> None:
        for ref, text in texts.items():
            if ref not in self._lately:
                self._lately[ref] = text
                self._size += len(text)
        while self._size > _CACHED and len(self._lately) > 1:
            _, text = self._lately.popitem(last=False)
            self._size -= len(text)


class _Large(StorageDriver):
    """Large payloads among the contents, by reference."""

    def __init__(self, shared: SharedContents) -> None:
        self._shared = shared

    def name(self) -> str:
        return "policy-contents"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        kept = [payload.SerializeToString(deterministic=True) for payload in payloads]
        refs = [content_ref(data) for data in kept]
        await asyncio.to_thread(self._shared.put, dict(zip(refs, kept, strict=True)))
        return [StorageDriverClaim({"ref": ref}) for ref in refs]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        refs = [claim.claim_data["ref"] for claim in claims]
        found = await asyncio.to_thread(self._shared.get, refs)
        return [Payload.FromString(found[ref]) for ref in refs]


def large(shared: SharedContents | None) -> ExternalStorage | None:
    """Where large payloads go; ``None``: into Temporal's record, as far as it takes them."""
    return None if shared is None else ExternalStorage([_Large(shared)], payload_size_threshold=LARGE)
