"""A finding for people: what, where with the lines themselves, why, and the way out."""

from __future__ import annotations

from collections.abc import Iterable

from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers.snippet import Paint, plain, snippet, told

_ANSI = {
    "error": "1;31",
    "warning": "1;33",
    "note": "1;36",
    "frame": "34",
    "secondary": "34",
    "strong": "1",
    "help": "36",
}


def render(
    findings: Iterable[Diagnostic], colour: bool = False, columns: int | None = None, encoding: str = "utf-8"
) -> str:
    """All findings, an empty line between two of them, without a line end after the last.

    ``columns`` is the width of the terminal they are for, ``None`` for no terminal; ``encoding`` is that of the output.
    """
    return "\n\n".join(one(finding, colour, columns, encoding) for finding in findings)


def one(finding: Diagnostic, colour: bool = False, columns: int | None = None, encoding: str = "utf-8") -> str:
    paint = _painter(finding.severity) if colour else plain
    head = f"{paint(f'{finding.severity}[{finding.code}]', 'primary')}{paint(f': {told(finding.message)}', 'strong')}"
    rows = [head, *snippet(finding, paint, columns, encoding)]
    if finding.help:
        gutter = max(len(str(label.span.line)) for label in (finding.primary, *finding.secondary))
        rows.append(f"{' ' * gutter} {paint('=', 'frame')} {paint('help:', 'help')} {told(finding.help)}")
    return "\n".join(rows)


def _painter(severity: str) -> Paint:
    def paint(text: str, role: str) -> str:
        code = _ANSI[severity if role == "primary" else role]
        return f"\x1b[{code}m{text}\x1b[0m"

    return paint
