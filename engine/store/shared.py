"""What every store does alike: the digests it keeps, the record of a run that ended, the errors it raises."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from msgspec import structs

from engine.core.decisions import NUMBERED, AnyDecision, End, digest
from engine.store.protocol import JournalError, RunRecord

_NUMBERED: Final = frozenset[type](NUMBERED)

Clock = Callable[[], int]
"""Milliseconds since 1970 (UTC)."""


def wall_clock() -> int:
    """The time that several processes have in common."""
    return time.time_ns() // 1_000_000


def digest_of(decision: AnyDecision) -> str:
    """The digest a journal keeps: empty where a decision starts nothing."""
    return digest(decision) if decision.__class__ in _NUMBERED else ""


def ended(record: RunRecord, end: End) -> RunRecord:
    """The record of a run that has ended."""
    return structs.replace(record, status=end.outcome.status, used=end.outcome.used)


def moment(at: int) -> str:
    """A point in time in words, from milliseconds since 1970."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms after 1970"


def unknown_run(run: str) -> JournalError:
    return JournalError(f"the journal has no run {run!r}")


def out_of_order(run: str, seq: int) -> JournalError:
    """What is said of an event whose number is taken, or leaves a gap."""
    return JournalError(
        f"event {seq} of run {run!r} is out of order: somebody else drives this run, let one of both go on"
    )


def unknown_content(ref: str) -> JournalError:
    return JournalError(f"the journal has no content {ref}: it is damaged, restore it from a copy")


def taken(run: str) -> JournalError:
    return JournalError(f"there already is a run {run!r}; give the new one another id")
