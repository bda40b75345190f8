"""Findings as workflow commands of GitHub Actions: each becomes an annotation at its line.

``::warning file=F,line=L,col=C,endLine=L,endColumn=C,title=CODE::message``; GitHub reads `%`, line ends, and in
properties `:` and `,`, as escapes.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers.snippet import told

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(findings: Iterable[Diagnostic]) -> str:
    """All findings, one a line, without a line end after the last."""
    return "\n".join(one(finding) for finding in findings)


def one(finding: Diagnostic) -> str:
    span = finding.primary.span
    name, line, column = finding.position
    end_line, end_column = span.source.position(span.end)
    properties = {"file": name, "line": line, "col": column}
    if end_line == line:
        properties |= {"endColumn": max(end_column, column + 1)}  # GitHub has no columns for what spans lines
    properties |= {"title": finding.code}
    place = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    text = f"{told(finding.message)}; {told(finding.help)}" if finding.help else told(finding.message)
    return f"::{_COMMANDS[finding.severity]} {place}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
