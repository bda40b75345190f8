"""A finding on one line, in the form that editors and grep read: ``file:line:column: severity[code]: message``."""

from __future__ import annotations

from collections.abc import Iterable

from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers.snippet import clean, told


def render(findings: Iterable[Diagnostic]) -> str:
    """All findings, one a line, without a line end after the last."""
    return "\n".join(one(finding) for finding in findings)


def one(finding: Diagnostic) -> str:
    name, line, column = finding.position
    help = f"; {told(finding.help)}" if finding.help else ""
    place = f"{clean(name)}:{line}:{column}" if finding.primary.span.source.text else clean(name)
    return f"{place}: {finding.severity}[{finding.code}]: {told(finding.message)}{help}"
