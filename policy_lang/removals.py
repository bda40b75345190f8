"""Edits that take something out of a file, with the white space and the signs that go with it.

Never a comment: where one stands in the way, there is no edit. Knows the text around a stretch, not what it means.
"""

from __future__ import annotations

import re

from policy_lang.diagnostics import Edit
from policy_lang.source import Source, Span

_THEN = re.compile(r"\bthen[ \t]+\Z")
_BLANKS = re.compile(r"[ \t]*")
_ALLOWING = re.compile(r"[ \t]*#.*\bpolicy\b")


def whole_line(span: Span) -> tuple[Edit, ...]:
    """The edit that removes a statement of one line, its line end included; none if it shares lines with others, or
    if a suppression above it would then be about something else."""
    line = alone(span)
    if line is None or _ALLOWING.match(_line_above(line)):
        return ()
    return (Edit(line, ""),)


def alone(span: Span) -> Span | None:
    """The lines that a stretch has for itself, their ends included; ``None`` if something else stands on them."""
    source = span.source
    start, end = source.line_start(span.start), source.line_end(span.end)
    if source.text[start : span.start].strip() or source.text[span.end : end].strip():
        return None
    return Span(source, start, source.next_line(span.end))


def behind(span: Span) -> tuple[Edit, ...]:
    """The edit that removes what stands behind something else on its line, with the blanks before it."""
    return (Edit(Span(span.source, _blanks_before(span.source, span.start), span.end), ""),)


def item(before: Span, span: Span) -> tuple[Edit, ...]:
    """The edit that removes one of a list, with the sign between it and the one ``before``."""
    return (Edit(Span(span.source, before.end, span.end), ""),)


def step(span: Span, following: Span | None = None) -> tuple[Edit, ...]:
    """The edit that removes a step of a ladder and its ``then``; of a first step, which has none, that of the step that
    is ``following``."""
    source = span.source
    then = _THEN.search(source.text, source.line_start(span.start), span.start)
    if then is None:
        gap = source.text[span.end : following.start] if following else "#"
        return () if following is None or "#" in gap else (Edit(Span(source, span.start, following.start), ""),)
    whole = Span(source, then.start(), span.end)
    if (line := alone(whole)) is not None:
        return (Edit(line, ""),)
    if not source.text[source.line_start(whole.start) : whole.start].strip():
        rest = _BLANKS.match(source.text, whole.end)
        return (Edit(whole._replace(end=rest.end() if rest else whole.end), ""),)  # a comment is left on this line
    return behind(whole)


def moved(span: Span, to: int) -> tuple[Edit, ...]:
    """The edits that put a whole line above another, with a comment at its end; none if something else stands on it,
    or if a suppression above it would then be about something else."""
    end = span.source.line_end(span.end)
    if span.source.text[span.end : end].lstrip(" \t")[:1] == "#":
        span = span._replace(end=end)
    line = alone(span)
    if line is None or _ALLOWING.match(_line_above(line)):
        return ()
    to = above(span.source, to)
    text = line.text if line.text.endswith("\n") else f"{line.text}\n"
    return (Edit(Span(span.source, to, to), text), Edit(line, ""))


def above(source: Source, offset: int) -> int:
    """Where a line above that of an offset begins: above the suppressions, too, that are for it."""
    start = source.line_start(offset)
    while _ALLOWING.match(_line_above(Span(source, start, start))):
        start = source.line_start(start - 1)
    return start


def _blanks_before(source: Source, offset: int) -> int:
    start = source.line_start(offset)
    return start + len(source.text[start:offset].rstrip(" \t"))


def _line_above(line: Span) -> str:
    text, start = line.source.text, line.start
    return text[line.source.line_start(start - 1) : start] if start else ""
