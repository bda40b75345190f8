"""Findings without drawing, for screen readers: each thing on a line of its own, and places in words.

What a mark would point at is quoted.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.renderers.snippet import clean, told

_LONGEST = 60


def render(findings: Iterable[Diagnostic]) -> str:
    """All findings, an empty line between two of them, without a line end after the last."""
    return "\n\n".join(one(finding) for finding in findings)


def one(finding: Diagnostic) -> str:
    rows = [f"{finding.severity} {finding.code}: {told(finding.message)}", f"in {_place(finding.primary)}"]
    name = finding.primary.span.source.name
    for label in finding.secondary:
        elsewhere = "see also " if label.span.source.name == name else "see also, in another file, "
        rows.append(f"{elsewhere}{_place(label)}")
    if finding.help:
        rows.append(f"help: {told(finding.help)}")
    return "\n".join(rows)


def _place(label: Label) -> str:
    source = label.span.source
    if not source.text:
        return clean(source.name)
    line, column = source.position(label.span.start)
    quoted = clean(label.span.text.split("\n")[0].strip())
    quoted = quoted if len(quoted) <= _LONGEST else f"{quoted[:_LONGEST]} and so on"
    at = f", at {quoted}" if quoted else ""
    why = f": {told(label.text)}" if label.text else ""
    return f"{clean(source.name)}, line {line}, column {column}{at}{why}"
