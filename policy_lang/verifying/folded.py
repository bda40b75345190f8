"""The table of a run with its loops folded: rows that repeat are written once, with how often they come."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.step import Compiled
from engine.verify.replay import Played
from engine.verify.traces import folded
from policy_lang.testing.play import Record
from policy_lang.testing.table import HEAD, aligned, rows

Row = tuple[str, ...]


def table(compiled: Compiled, played: Sequence[Played], file: str) -> list[str]:
    """Head and rows: number, time, event, decision, the rule that decided, the counters that moved."""
    made = rows(compiled, [Record(*step) for step in played], file)
    shown: list[Row] = [("", *HEAD)]
    for start, size, times in folded([_said(row) for row in made]):
        block = made[start : start + size]
        for place, row in enumerate(block):
            first, last = place == 0, place == size - 1
            mark = f"x{times} [" if times > 1 and first else ""
            end = " ]" if times > 1 and last else ""
            shown.append((mark, *row[:-1], row[-1] + end))
    return aligned(shown)


def _said(row: Row) -> str:
    """What a row says but for its number, its time and how far the counters are."""
    return "\t".join(row[2:5])
