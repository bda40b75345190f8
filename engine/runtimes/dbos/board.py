"""Our own tables beside DBOS's: signals to runs, what runs show, and which workers are alive.

DBOS has messages of its own, but each wait for one costs a run three transactions and a query a second; a worker asks
this board once for all of its runs. Knows nothing of what a signal or a report says. All of it waits for the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

METADATA = sa.MetaData()
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_signals = sa.Table(
    "policy_signal",
    METADATA,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.UniqueConstraint("run", "name"),
    sqlite_autoincrement=True,  # or the number of a signal that is gone would be given to another one
)
_reports = sa.Table(
    "policy_report",
    METADATA,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)
_workers = sa.Table(
    "policy_worker",
    METADATA,
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("heir", sa.Text, nullable=False),
)
T = TypeVar("T")
LEFT = -1
"""The beat of a worker that has left by itself."""
_AT_ONCE = 500
"""Values in one statement; SQLite takes some thousands."""


@dataclass(frozen=True)
class Signal:
    """A signal on the board. ``number`` is unique, and says nothing of the order on PostgreSQL."""

    number: int
    run: str
    body: str


@dataclass(frozen=True)
class Peer:
    """A worker as the board knows it: how often it has reported, and who looks after its runs instead of it."""

    worker: str
    beat: int
    heir: str


class Board:
    """See the module. ``engine`` has the tables."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._insert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    # Signals and reports.

    def send(self, run: str, name: str, body: str) -> None:
        """Send a signal to a run, once for each ``name``: sending it again changes nothing."""
        statement = self._insert(_signals).values(run=run, name=name, body=body).on_conflict_do_nothing()
        with self._engine.begin() as connection:
            connection.execute(statement)

    def report(self, run: str) -> str | None:
        """What a run shows."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(_reports.c.body).where(_reports.c.run == run)).scalar()

    def exchange(
        self, waiting: Sequence[str], reports: Mapping[str, str], recorded: Sequence[int], over: Sequence[str]
    ) -> list[Signal]:
        """In one transaction: show reports, drop signals that are on record, and all of runs that are over.

        Gives the signals for the runs that wait.
        """
        found: list[Signal] = []
        with self._engine.begin() as connection:
            for some in _parts(list(reports.items())):
                shown = self._insert(_reports).values([{"run": run, "body": body} for run, body in some])
                connection.execute(
                    shown.on_conflict_do_update(index_elements=["run"], set_={"body": shown.excluded.body})
                )
            for numbers in _parts(recorded):
                connection.execute(sa.delete(_signals).where(_signals.c.number.in_(numbers)))
            for runs in _parts(over):
                connection.execute(sa.delete(_reports).where(_reports.c.run.in_(runs)))
                connection.execute(sa.delete(_signals).where(_signals.c.run.in_(runs)))
            for runs in _parts(waiting):
                asked = sa.select(_signals.c.number, _signals.c.run, _signals.c.body)
                rows = connection.execute(asked.where(_signals.c.run.in_(runs)).order_by(_signals.c.number))
                found += [Signal(number, run, body) for number, run, body in rows]
        return found

    # Workers.

    def enter(self, worker: str) -> None:
        """A worker begins; its name was never used before."""
        with self._engine.begin() as connection:
            connection.execute(sa.insert(_workers).values(worker=worker, beat=0, heir=""))

    def beat(self, worker: str) -> bool:
        """A worker is alive. False: others have taken it for dead, and go on with its runs."""
        mine = sa.update(_workers).where(_workers.c.worker == worker, _workers.c.heir == "")
        with self._engine.begin() as connection:
            return connection.execute(mine.values(beat=_workers.c.beat + 1)).rowcount == 1

    def leave(self, worker: str) -> None:
        """A worker ends by itself: nobody has to wait before he goes on with its runs."""
        row = self._insert(_workers).values(worker=worker, beat=LEFT, heir="")  # it may have been forgotten meanwhile
        with self._engine.begin() as connection:
            connection.execute(row.on_conflict_do_update(index_elements=["worker"], set_={"beat": LEFT}))

    def peers(self) -> list[Peer]:
        """All workers that may still have runs."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(_workers.c.worker, _workers.c.beat, _workers.c.heir))
            return [Peer(worker, beat, heir) for worker, beat, heir in rows]

    def inherit(self, peer: Peer, heir: str) -> bool:
        """Look after the runs of a dead worker from now on. False: it is alive after all, or somebody else does."""
        same = (_workers.c.worker == peer.worker, _workers.c.beat == peer.beat, _workers.c.heir == peer.heir)
        with self._engine.begin() as connection:
            return connection.execute(sa.update(_workers).where(*same).values(heir=heir)).rowcount == 1

    def forget(self, worker: str) -> None:
        """Nothing of this worker is left."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(_workers).where(_workers.c.worker == worker))


def _parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]
