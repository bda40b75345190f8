"""The runs of a journal as a tree, in words and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from engine.core.state import Used
from engine.store.shared import moment
from policy_lang.cli.journals import plain, standing
from policy_lang.cli.run_report import used_words

if TYPE_CHECKING:
    from engine.core.step import Compiled
    from engine.store.protocol import Lease, RunRecord
    from engine.store.sqlite import SqliteStore

_TITLES = ("run", "status", "agent", "started", "used")


@dataclass(frozen=True)
class Row:
    """One run in a list. ``depth`` is how far it stands to the right, ``used`` is ``None`` where nobody can tell."""

    record: RunRecord
    depth: int
    status: str
    driven_by: str
    used: Used | None

    def plain(self) -> dict[str, Any]:
        """The run as plain data: times in milliseconds, cost in micro-dollars."""
        record = self.record
        return {
            "run": record.run,
            "parent": record.parent,
            "root": record.top,
            "agent": record.agent,
            "depth": record.depth,
            "thread": record.thread,
            "status": self.status,
            "driven_by": self.driven_by or None,
            "started": record.started,
            "used": None if self.used is None else msgspec.structs.asdict(self.used),
        }


def tree(records: Sequence[RunRecord]) -> Iterator[tuple[RunRecord, int]]:
    """The runs in the order of their start, each behind the one that spawned it, with its depth in what is listed."""
    known = {record.run for record in records}
    children: dict[str | None, list[RunRecord]] = {}
    for record in records:
        children.setdefault(record.parent if record.parent in known else None, []).append(record)
    waiting = [(record, 0) for record in reversed(children.get(None, []))]
    while waiting:
        record, depth = waiting.pop()
        yield record, depth
        waiting += [(child, depth + 1) for child in reversed(children.get(record.run, []))]


def row(store: SqliteStore, record: RunRecord, depth: int, living: dict[str, Lease]) -> Row:
    """What a list says of a run. ``living`` are the leases of living processes."""
    from engine.store.owners import owner_words

    lease = None if record.ended else living.get(record.top)
    driven_by = owner_words(lease.owner) if lease else ""
    return Row(record, depth, standing(record, living), driven_by, record.used or used_so_far(store, record))


def used_so_far(store: SqliteStore, record: RunRecord) -> Used | None:
    """What a run that has not ended has used; ``None`` if this release cannot read its policy."""
    from engine.core.step import replay

    try:
        compiled = _compiled(record.policy)
    except ValueError:
        return None
    return compiled.used(replay(compiled, (step.event for step in store.load(record.run).steps)))


@lru_cache(maxsize=64)
def _compiled(policy: str) -> Compiled:
    """A stored policy ready to replay: many runs of a journal have the same."""
    from engine.core.policy import Policy
    from engine.core.step import compile

    return compile(Policy.model_validate_json(policy))


def table(rows: Sequence[Row]) -> list[str]:
    """A line for each run, below their titles."""
    cells = [_TITLES, *(_cells(row) for row in rows)]
    with_agents = any(row.record.agent for row in rows)
    shown = [i for i, title in enumerate(_TITLES) if title != "agent" or with_agents]
    widths = {i: max(len(line[i]) for line in cells) for i in shown}
    return ["  ".join(f"{line[i]:<{widths[i]}}" for i in shown).rstrip() for line in cells]


def as_json(document: dict[str, Any]) -> str:
    """One JSON document."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def _cells(row: Row) -> tuple[str, ...]:
    record = row.record
    status = f"{row.status} ({row.driven_by})" if row.driven_by and row.status == "running" else row.status
    used = "?" if row.used is None else used_words(row.used)
    return ("  " * row.depth + plain(record.run), status, plain(record.agent), moment(record.started), used)
