"""Lines of source with carets under them.

Columns are those of a terminal: tabs are spread, wide characters take two cells, combining ones
none, and what a terminal would act on or hide is replaced, so that carets stay aligned and a file
cannot play tricks on its reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.source import Source

TAB = 4
WIDTH = 140
"""Longer lines are shown in part."""
_MARGIN = 30

Paint = Callable[[str, str], str]
"""Colours a text for a role: ``primary``, ``secondary`` or ``frame``."""


def plain(text: str, _role: str) -> str:
    return text


def clean(text: str) -> str:
    """The text with every character that is not plainly visible replaced."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


class _Mark(NamedTuple):
    start: int
    end: int
    text: str
    primary: bool


class _Line(NamedTuple):
    """One line as shown, and the cell at which each of its characters begins."""

    text: str
    cells: list[int]


def _expand(line: str) -> _Line:
    if line.isascii() and line.isprintable():
        return _Line(line, list(range(len(line) + 1)))
    from unicodedata import combining, east_asian_width

    shown: list[str] = []
    cells = [0]
    for char in line:
        at = cells[-1]
        if char == "\t":
            size = TAB - at % TAB
            shown.append(" " * size)
        elif not char.isprintable():
            size = 1
            shown.append("\ufffd")
        else:
            # marks that enclose (Me) and variation selectors have combining class 0; their width is 0 all the same
            size = 0 if combining(char) or _is_mark(char) else 2 if east_asian_width(char) in "WF" else 1
            shown.append(char)
        cells.append(at + size)
    return _Line("".join(shown), cells)


def _is_mark(char: str) -> bool:
    from unicodedata import category

    return category(char) in ("Mn", "Me")


def snippet(finding: Diagnostic, paint: Paint = plain) -> list[str]:
    """The places of a finding: ``-->`` its own, ``:::`` those in other files, with their lines and labels."""
    labels = [finding.primary, *finding.secondary]
    sources: list[Source] = []
    for label in labels:
        if label.span.source not in sources:
            sources.append(label.span.source)
    gutter = max(len(str(label.span.line)) for label in labels)
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
        out += _lines(
            source, [label for label in labels if label.span.source is source], finding.primary, gutter, paint
        )
    return out


def _lines(source: Source, labels: Sequence[Label], primary: Label, gutter: int, paint: Paint) -> list[str]:
    empty = paint(f"{' ' * gutter} |", "frame")
    out, last = [empty], 0
    rows: dict[int, list[Label]] = {}
    for label in labels:
        rows.setdefault(label.span.line, []).append(label)
    for number in sorted(rows):
        if last and number > last + 2:
            out.append(paint("...", "frame"))
        elif last and number == last + 2:
            out.append(_numbered(number - 1, _expand(source.line(number - 1)).text[:WIDTH], gutter, paint))
        out += _marked(source, number, rows[number], primary, gutter, paint)
        last = number
    return out


def _numbered(number: int, text: str, gutter: int, paint: Paint) -> str:
    frame = paint(f"{number:>{gutter}} |", "frame")
    return f"{frame} {text}".rstrip()


def _marked(source: Source, number: int, labels: list[Label], primary: Label, gutter: int, paint: Paint) -> list[str]:
    """A line and, below it, its marks and their texts."""
    text = source.line(number)
    line = _expand(text)
    start = source.starts[number - 1]
    marks = []
    for label in labels:
        begin = min(label.span.start - start, len(text))
        end = min(max(label.span.end - start, begin), len(text))
        at = line.cells[begin]
        marks.append(_Mark(at, max(line.cells[end], at + 1), label.text, label is primary))
    shown, marks = _cropped(line.text, line.cells[-1], marks)
    frame = paint(f"{' ' * gutter} |", "frame")
    rows = _mark_rows(sorted(marks), paint)
    return [_numbered(number, shown, gutter, paint), *(f"{frame} {row}" for row in rows)]


def _cropped(text: str, width: int, marks: list[_Mark]) -> tuple[str, list[_Mark]]:
    """A long line cut to what its marks are about. Only lines of one-cell characters are cut."""
    if width <= WIDTH or width != len(text):
        return text, marks
    left = max(0, min(mark.start for mark in marks) - _MARGIN)
    right = left + WIDTH
    cut = ("…" if left else "") + text[left:right] + ("…" if right < width else "")
    shift = left - (1 if left else 0)
    return cut, [m._replace(start=min(m.start - shift, WIDTH), end=min(m.end - shift, WIDTH + 1)) for m in marks]


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
        row += " " + paint(clean(marks[-1].text), "primary" if marks[-1].primary else "secondary")
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
        row += " " * (last.start - at) + paint(clean(last.text), "primary" if last.primary else "secondary")
    return row
