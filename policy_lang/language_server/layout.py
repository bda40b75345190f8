"""A document in the layout of `policy fmt`, and any other text for it, as one edit of what differs."""

from __future__ import annotations

from lsprotocol import types

from policy_lang.formatting import format_source
from policy_lang.language_server.analysis import Analysis


def edits(analysis: Analysis) -> list[types.TextEdit]:
    """What changes; nothing where the file is left alone, or is in its layout."""
    if analysis.resolved is None:
        return []
    return difference(analysis, format_source(analysis.source).text)


def difference(analysis: Analysis, new: str) -> list[types.TextEdit]:
    """From the document as it is to another text: one edit, or none."""
    old = analysis.source.text
    if new == old:
        return []
    start = _common(old, new)
    most = min(len(old), len(new)) - start
    end = _common(old[::-1][:most], new[::-1][:most])
    # never between the two signs of a Windows line end
    start -= old[start - 1 : start] == "\r"
    end -= bool(end) and old[len(old) - end - 1 : len(old) - end] == "\r"
    return [types.TextEdit(analysis.lines.range(start, len(old) - end), new[start : len(new) - end])]


def _common(a: str, b: str) -> int:
    """How long two texts begin alike."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
