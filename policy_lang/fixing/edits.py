"""Edits in a text: which of them go together, what they make of it, and where a place of it is afterwards.

Knows offsets and line ends, nothing of policies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final

from policy_lang.diagnostics import Diagnostic, Edit

BOM: Final = "\ufeff"


def line_end(text: str) -> str:
    """How the lines of a text end. Like `policy fmt`: in the way of Windows if all of them do."""
    return "\r\n" if "\r\n" in text and text.count("\n") == text.count("\r\n") else "\n"


def in_line_ends(replacement: str, text: str) -> str:
    """What is written into a text, with the line ends that the text has."""
    return replacement.replace("\r\n", "\n").replace("\n", line_end(text))


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text with edits that do not overlap."""
    end = line_end(text)
    parts: list[str] = []
    at = 0
    for edit in sorted(edits, key=_place):
        parts += [text[at : edit.span.start], edit.replacement.replace("\r\n", "\n").replace("\n", end)]
        at = edit.span.end
    return "".join([*parts, text[at:]])


def moved(offset: int, text: str, edits: Iterable[Edit]) -> int:
    """Where a place of the text is after the edits; that of removed text is where it was removed."""
    shift = 0
    for edit in sorted(edits, key=_place):
        start, end = edit.span.start, edit.span.end
        if start > offset or (start == offset and start == end):
            break
        if offset < end:
            return start + shift
        shift += len(in_line_ends(edit.replacement, text)) - (end - start)
    return offset + shift


def without_overlaps(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Those whose fixes can be made at the same time: in their order, each unless it meets one before it."""
    taken: list[Edit] = []
    chosen: list[Diagnostic] = []
    for finding in findings:
        if not any(_meet(edit, other) for edit in finding.fix for other in _beside(edit, taken)):
            chosen.append(finding)
            for edit in finding.fix:
                insort(taken, edit, key=_place)
    return chosen


def _beside(edit: Edit, taken: list[Edit]) -> list[Edit]:
    """Those before and behind an edit, among many in order that leave one another alone."""
    at = bisect_left(taken, _place(edit), key=_place)
    return taken[max(0, at - 2) : at + 2]


def sound(fix: Sequence[Edit]) -> bool:
    """Do the edits of one fix leave one another alone?"""
    return not any(_meet(one, other) for at, one in enumerate(fix) for other in fix[:at])


def _meet(one: Edit, other: Edit) -> bool:
    """Do two edits touch the same text? Something written where something is removed does, too: in which order?"""
    (a, b), (c, d) = (one.span.start, one.span.end), (other.span.start, other.span.end)
    if a == b or c == d:
        return a <= d and c <= b
    return a < d and c < b


def _place(edit: Edit) -> tuple[int, int]:
    return edit.span.start, edit.span.end
