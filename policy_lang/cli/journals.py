"""What the commands over a journal share: opening it, finding what an id means, saying when something was."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.protocol import Lease, RunRecord
    from engine.store.sqlite import SqliteStore

_SOME = 3


class NotFound(Exception):
    """The arguments name nothing that is there. The message says what is."""


def add_journal(
    parser: argparse.ArgumentParser, id: str = "", *, optional: bool = False, or_engine: bool = False
) -> None:
    """``--journal``, and the ``id`` of what the command is about."""
    if id:
        parser.add_argument("id", metavar="ID", nargs="?" if optional else None, help=f"{id}, or how it begins")
    help = "the file that `policy run --journal` wrote"
    parser.add_argument("--journal", required=not or_engine, metavar="PATH", help=help)


@contextmanager
def opened(path: str, *, read_only: bool) -> Iterator[SqliteStore]:
    """The journal at a path, which must be there. Raises ``JournalError``."""
    from engine.store.protocol import JournalError
    from engine.store.sqlite import SqliteStore

    if not os.path.exists(path):
        raise JournalError(f"{path}: there is no such journal")
    store = SqliteStore(path, read_only=read_only)
    try:
        yield store
    finally:
        store.close()


def chosen(wanted: str, known: Sequence[str], what: str, path: str) -> str:
    """The id that is wanted, or the only one that begins so. Raises ``NotFound``."""
    if wanted in known:
        return wanted
    found = [id for id in known if id.startswith(wanted)] if wanted else []
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - _SOME} more" if len(found) > _SOME else ""
        raise NotFound(
            f"{path}: {len(found)} {what}s begin with {wanted!r}: {', '.join(found[:_SOME])}{more}; say which"
        )
    if not known:
        raise NotFound(f"{path}: it has no {what}s")
    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the last one is {known[-1]!r}"
    raise NotFound(f"{path}: it has no {what} {wanted!r}; {hint}")


def chosen_run(store: SqliteStore, wanted: str) -> RunRecord:
    """The record of the run that is wanted. Raises ``NotFound``."""
    records = {record.run: record for record in store.runs()}
    return records[chosen(wanted, list(records), "run", str(store.path))]


def drivers(leases: Iterable[Lease]) -> dict[str, Lease]:
    """The leases of living processes, by the run at the top of the tree that they drive."""
    from engine.store.owners import known_dead

    return {lease.key: lease for lease in leases if not known_dead(lease.owner)}


def standing(record: RunRecord, living: dict[str, Lease]) -> str:
    """The status of a run in a word: ``dead`` if it has no end and nobody drives it."""
    from engine.store.protocol import RUNNING

    return "dead" if record.status == RUNNING and record.top not in living else record.status


def plain(text: str) -> str:
    """Text on one line, without control characters: it comes from models, and terminals obey what they are sent."""
    from policy_lang.cli.run_view import printable

    return printable(" ".join(text.split()))
