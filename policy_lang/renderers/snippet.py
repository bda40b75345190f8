"""Lines of source with carets under them.

Columns are those of a terminal: tabs are spread, wide characters take two cells, combining ones
none, and what a terminal would act on or hide is replaced, so that carets stay aligned and a file
cannot play tricks on its reader.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple

from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.source import Source
from policy_lang.width import width

TAB = 4
WIDTH = 140
"""Longer lines are shown in part, where no terminal says how wide it is."""
NARROWEST = 40
"""Less than that shows nothing of use; a terminal that is narrower breaks lines by itself."""

QUOTED = 80
"""So much of one word or text of a file is quoted in a sentence."""
_LONG = re.compile(rf"`([^`]{{{QUOTED + 1},}})`")

Paint = Callable[[str, str], str]
"""Colours a text for a role: ``primary``, ``secondary`` or ``frame``."""


def plain(text: str, _role: str) -> str:
    return text


def clean(text: str) -> str:
    """The text with every character that is not plainly visible replaced."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def told(text: str) -> str:
    """A message, label or help as it is shown: clean, and what it quotes from a file not longer than ``QUOTED``."""
    return _LONG.sub(lambda match: f"`{match[1][:QUOTED]}…`", clean(text))


class _Mark(NamedTuple):
    start: int
    end: int
    text: str
    primary: bool


class _Line(NamedTuple):
    """One line as shown: what stands for each of its characters, and the cell at which that begins, and all end."""

    shown: Sequence[str]
    cells: Sequence[int]

    def part(self, start: int, size: int) -> tuple[str, int, int]:
        """What is seen from a cell on, in at most so many cells, and where it begins and ends."""
        first = bisect_left(self.cells, start)
        last = max(first, bisect_right(self.cells, self.cells[first] + size) - 1)
        return "".join(self.shown[first:last]), self.cells[first], self.cells[last]


def _expand(line: str, encoding: str) -> _Line:
    if line.isascii() and line.isprintable():
        return _Line(line, range(len(line) + 1))
    shown: list[str] = []
    cells = [0]
    for char in line:
        at = cells[-1]
        if char == "\t":
            size = TAB - at % TAB
            shown.append(" " * size)
        else:
            seen = char if char.isprintable() else "\ufffd"
            # What the output has no sign for is written to it as an escape, which takes a cell for each of its letters.
            told = seen.encode(encoding, "backslashreplace").decode(encoding)
            size = 1 if seen != char and told == seen else width(told)
            shown.append(told)
        cells.append(at + size)
    return _Line(shown, cells)


def snippet(
    finding: Diagnostic, paint: Paint = plain, columns: int | None = None, encoding: str = "utf-8"
) -> list[str]:
    """The places of a finding: ``-->`` its own, ``:::`` those in other files, with their lines and labels.

    ``columns`` is the width of the terminal it is for, ``None`` for no terminal; ``encoding`` is that of the output.
    """
    labels = [finding.primary, *finding.secondary]
    sources: list[Source] = []
    for label in labels:
        if label.span.source not in sources:
            sources.append(label.span.source)
    gutter = max(len(str(label.span.line)) for label in labels)
    # Beside the line stand its number, a bar, and signs that something is left out.
    width = WIDTH if columns is None else max(NARROWEST, min(WIDTH, columns - gutter - 5))
    out: list[str] = []
    for source in sources:
        first = next(label for label in labels if label.span.source is source)
        line, column = source.position(first.span.start)
        arrow = "-->" if source is sources[0] else ":::"
        name = clean(source.name)
        if not source.text and len(labels) == 1:
            return [f"{' ' * gutter}{paint(arrow, 'frame')} {name}"]
        if source is not sources[0]:
            out.append(paint(f"{' ' * gutter} |", "frame"))
        out.append(f"{' ' * gutter}{paint(arrow, 'frame')} {name}:{line}:{column}")
        page = _Page(source, finding.primary, gutter, width, paint, encoding)
        out += page.lines([label for label in labels if label.span.source is source])
    return out


class _Page:
    """Lines of one source on a page of a width, with a gutter of so many digits."""

    def __init__(self, source: Source, primary: Label, gutter: int, width: int, paint: Paint, encoding: str) -> None:
        self.source, self.primary, self.gutter, self.width, self.paint = source, primary, gutter, width, paint
        self.encoding = encoding
        self.cut = "…".encode(encoding, "replace").decode(encoding)
        self.frame = paint(f"{' ' * gutter} |", "frame")

    def lines(self, labels: Sequence[Label]) -> list[str]:
        out, last = [self.frame], 0
        rows: dict[int, list[Label]] = {}
        for label in labels:
            rows.setdefault(label.span.line, []).append(label)
        for number in sorted(rows):
            if last and number > last + 2:
                out.append(self.paint("...", "frame"))
            elif last and number == last + 2:
                out.append(
                    self._numbered(
                        number - 1, _expand(self.source.line(number - 1), self.encoding).part(0, self.width)[0]
                    )
                )
            out += self._marked(number, rows[number])
            last = number
        return out

    def _numbered(self, number: int, text: str) -> str:
        frame = self.paint(f"{number:>{self.gutter}} |", "frame")
        return f"{frame} {text}".rstrip()

    def _marked(self, number: int, labels: list[Label]) -> list[str]:
        """A line and, below it, its marks and their texts."""
        text = self.source.line(number)
        line = _expand(text, self.encoding)
        start = self.source.starts[number - 1]
        marks = []
        for label in labels:
            begin = min(label.span.start - start, len(text))
            end = min(max(label.span.end - start, begin), len(text))
            at = line.cells[begin]
            marks.append(_Mark(at, max(line.cells[end], at + 1), label.text, label is self.primary))
        shown, marks = _cropped(line, marks, self.width, self.cut)
        return [
            self._numbered(number, shown),
            *(f"{self.frame} {row}" for row in _mark_rows(sorted(marks), self.paint)),
        ]


def _cropped(line: _Line, marks: list[_Mark], width: int, sign: str) -> tuple[str, list[_Mark]]:
    """A long line cut to what its marks are about. ``sign`` takes one cell, and says that something is left out."""
    size = line.cells[-1]
    if size <= width:
        return "".join(line.shown), marks
    text, left, right = line.part(max(0, min(mark.start for mark in marks) - min(30, width // 4)), width)
    shift = left - (1 if left else 0)
    end = right - shift
    cut = (sign if left else "") + text + (sign if right < size else "")
    return cut, [
        m._replace(start=min(m.start - shift, end), end=max(min(m.start - shift, end) + 1, min(m.end - shift, end + 1)))
        for m in marks
    ]


def _mark_rows(marks: list[_Mark], paint: Paint) -> list[str]:
    """Marks on one row with the last one's text behind it; the others' texts below, hung on bars."""
    if any(marks[at].end > marks[at + 1].start for at in range(len(marks) - 1)):
        return [row for mark in marks for row in _mark_rows([mark], paint)]
    row, at = "", 0
    for mark in marks:
        role = "primary" if mark.primary else "secondary"
        signs = ("^" if mark.primary else "-") * (mark.end - mark.start)
        row += " " * (mark.start - at) + paint(signs, role)
        at = mark.end
    if marks[-1].text:
        row += " " + paint(told(marks[-1].text), "primary" if marks[-1].primary else "secondary")
    rows = [row]
    hung = [mark for mark in marks[:-1] if mark.text]
    for index in range(len(hung) - 1, -1, -1):
        rows += [_bars(hung[: index + 1], paint), _bars(hung[:index], paint, hung[index])]
    return rows


def _bars(marks: list[_Mark], paint: Paint, last: _Mark | None = None) -> str:
    row, at = "", 0
    for mark in marks:
        row += " " * (mark.start - at) + paint("|", "primary" if mark.primary else "secondary")
        at = mark.start + 1
    if last is not None:
        row += " " * (last.start - at) + paint(told(last.text), "primary" if last.primary else "secondary")
    return row
