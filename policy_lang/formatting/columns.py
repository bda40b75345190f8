"""Where columns come to stand, and which ladders are broken into several lines.

Knows texts and their widths only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policy_lang.formatting.rows import Row
from policy_lang.width import width

WIDTH = 100
"""Cells of a line, comments at its end not counted. Only a ladder can be broken to keep to it."""


class _Line:
    """A row while it is laid out, column by column: ``end`` is how far it has come."""

    def __init__(self, row: Row, indent: int) -> None:
        self.row = row
        self.indent = self.end = indent
        self.code = ""
        forced = any(step.behind or step.above for step in row.steps)
        cells = [*row.cells, *row.ladder()]
        whole = indent + sum(width(cell) + row.gap for cell in cells if cell) - row.gap
        self.broken = bool(row.steps) and (forced or whole > WIDTH)
        # of a broken ladder each line begins in one and the same column
        self.cells = [*row.cells, row.steps[0].text] if self.broken else cells
        self.rests = self._rests()
        """How wide it is from each column on, in as little room as possible."""
        self.starts: list[int] = []

    def _rests(self) -> list[int]:
        sizes = [width(cell) for cell in self.cells]
        if self.broken:
            sizes[-1] = max(width(step.text) for step in self.row.steps)
        rests = [0]
        for size in reversed(sizes):
            rests.append(size + (self.row.gap if size and rests[-1] else 0) + rests[-1])
        return rests[::-1]

    @property
    def earliest(self) -> int:
        """Where its next cell can begin."""
        return self.end + self.row.gap if self.code else self.indent

    def place(self, column: int, target: int) -> None:
        """Write a cell at ``target``, or behind it if there is no room."""
        cell, start = self.cells[column], max(target, self.earliest)
        self.starts.append(start)
        if cell:
            self.code += " " * (start - (self.end if self.code else 0)) + cell
            self.end = start + width(cell)

    def lines(self) -> list[tuple[str, str]]:
        """What was written, each line with the comment at its end."""
        row = self.row
        if not self.broken:
            return [(self.code, row.comment)]
        first, *others = row.steps
        margin, lines, code = " " * self.starts[-1], [], self.code
        if first.behind or first.above:
            lines = [(code.removesuffix(first.text).rstrip(), first.behind), *_above(margin, first.above)]
            code = margin + first.text
        for step in others:
            lines += [(code, step.behind), *_above(margin, step.above)]
            code = margin + step.text
        return [*lines, (code, row.comment)]


def _above(margin: str, comments: Sequence[str]) -> list[tuple[str, str]]:
    return [(margin + comment, "") for comment in comments]


def align(rows: Sequence[Row], indent: int) -> None:
    """Lay out rows of one kind: sets their ``lines``."""
    lines = [_Line(row, indent) for row in rows]
    for column in range(max((len(line.cells) for line in lines), default=0)):
        here = [line for line in lines if column < len(line.cells)]
        target = common((line.earliest, line.rests[column]) for line in here if line.cells[column])
        for line in here:
            line.place(column, target)
    for line in lines:
        line.row.lines = line.lines()


def common(places: Iterable[tuple[int, int]]) -> int:
    """The column where a number of texts begin, given where each can begin at the earliest, and its width.

    It is that of the text that needs it most, unless another that would fit were pushed out of the width: then the
    widest do not count, and their texts stand where there is room.
    """
    places = list(places)
    bound = min((WIDTH - size for start, size in places if start + size <= WIDTH), default=WIDTH)
    return max((start for start, _ in places if start <= bound), default=0)
