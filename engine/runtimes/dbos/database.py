"""The database that DBOS keeps its record in, as our own tables beside it see it: addresses, schema, being unreachable.

Knows nothing of runs.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from dbos import DBOS
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from engine.run.errors import RunError
from engine.runtimes.protocol import RuntimeUnreachableError

APPLICATION = "policy"
"""The name under which all our runs are known to DBOS."""
_BUSY_S = 30
_LOCK = threading.Lock()


def address(database: str) -> str:
    """The URL of a database as DBOS and SQLAlchemy take it.

    ``database`` is ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST:PORT/NAME``. Raises ``RunError`` otherwise.
    """
    try:
        url = sa.make_url(database)
    except ArgumentError:
        url = None
    if url is not None and url.drivername in ("postgresql", "postgres", "postgresql+psycopg") and url.database:
        return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    if url is not None and url.drivername == "sqlite" and url.database and url.database != ":memory:":
        return database
    raise RunError(
        f"{database!r} is no address of a database: write sqlite:///FILE or postgresql://USER:PASSWORD@HOST:PORT/NAME"
    )


def shown(url: str) -> str:
    """An address without its password, for messages."""
    return sa.make_url(url).render_as_string(hide_password=True)


def opened(url: str) -> sa.Engine:
    """A small pool of connections for our own tables."""
    if url.startswith("sqlite"):
        return sa.create_engine(url, connect_args={"timeout": _BUSY_S, "isolation_level": "IMMEDIATE"})
    return sa.create_engine(
        url, pool_size=2, max_overflow=2, pool_pre_ping=True, connect_args={"connect_timeout": _BUSY_S}
    )


def prepared(url: str, ours: sa.MetaData) -> sa.Engine:
    """The database with DBOS's schema and our own tables in it; harmless where they are there already.

    Raises ``RuntimeUnreachableError``.
    """
    with reached(url), _LOCK:
        if url.startswith("sqlite"):
            _write_ahead(url)
        engine = opened(url)
        with engine.begin():
            pass  # DBOS would try for long to reach it
        DBOS.migrate(url)
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":  # two that begin at once would both create them
                connection.execute(sa.text("select pg_advisory_xact_lock(7361274)"))
            ours.create_all(connection)
    return engine


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Tell a database that cannot be reached from every other fault."""
    try:
        yield
    except (OperationalError, sqlite3.OperationalError) as exc:
        raise RuntimeUnreachableError(f"the database {shown(url)} cannot be reached: {_why(exc)}") from None
    except DBAPIError as exc:
        if exc.connection_invalidated:
            raise RuntimeUnreachableError(f"the database {shown(url)} cannot be reached: {_why(exc)}") from None
        raise


def _why(exc: Exception) -> str:
    reason = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    return (str(reason).strip().splitlines() or ["no answer"])[0]


def _write_ahead(url: str) -> None:
    """Let SQLite write ahead, which the file then keeps: twice as many steps a second, and readers wait for nobody."""
    path = sa.make_url(url).database
    assert path is not None
    if not Path(path).resolve().parent.is_dir():
        raise RuntimeUnreachableError(f"the database {shown(url)} cannot be reached: there is no such folder")
    connection = sqlite3.connect(path, timeout=_BUSY_S)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
