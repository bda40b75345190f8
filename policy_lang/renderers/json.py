"""Findings for tools: one JSON document.

``{"version": 1, "diagnostics": [...], "errors": n, "warnings": n, "notes": n}``; each diagnostic has ``code``,
``severity``, ``message``, ``primary`` and ``secondary`` labels (``file``, ``start`` and ``end`` as
``line`` and ``column`` from 1, the end exclusive, ``text``), ``help``, ``page`` (the command that says
more), ``fix``: the edits (``file``, ``start``, ``end``, ``replacement``) that make the finding go
away, all of them or none, and ``safety``: whether ``policy fix`` makes them unasked, ``safe`` or ``unsafe``, ``null``
without a fix.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from policy_lang.diagnostics import SEVERITIES, Diagnostic, Label
from policy_lang.source import Span

VERSION = 1


def render(findings: Sequence[Diagnostic], files: Sequence[str] = ()) -> str:
    """The document, indented, without a line end after it."""
    counts = {f"{severity}s": sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    document = {
        "version": VERSION,
        "diagnostics": [_diagnostic(finding) for finding in findings],
        **counts,
    }
    return json.dumps(document, indent=2, ensure_ascii=True)


def _diagnostic(finding: Diagnostic) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "primary": _label(finding.primary),
        "secondary": [_label(label) for label in finding.secondary],
        "help": finding.help,
        "page": finding.page,
        "fix": [{**_place(edit.span), "replacement": edit.replacement} for edit in finding.fix],
        "safety": ("safe" if finding.is_safe else "unsafe") if finding.fix else None,
    }


def _label(label: Label) -> dict[str, Any]:
    return {**_place(label.span), "text": label.text}


def _place(span: Span) -> dict[str, Any]:
    source = span.source
    (line, column), (end_line, end_column) = source.position(span.start), source.position(span.end)
    start, end = {"line": line, "column": column}, {"line": end_line, "column": end_column}
    return {"file": source.name, "start": start, "end": end}
