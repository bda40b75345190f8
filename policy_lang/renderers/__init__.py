"""Findings as text: ``full`` for people, ``spoken`` for screen readers, ``concise`` for one line
each, ``github`` for annotations, and as documents:
``json`` for tools, ``sarif`` for code scanning, ``junit`` for build servers.

Each renderer is a module with ``render(findings)``; those of documents are told the files too. They
read findings and sources, and change neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_lang.diagnostics import SEVERITIES, Diagnostic
from policy_lang.names import listed


def tally(findings: Sequence[Diagnostic], files: int) -> str:
    """The closing line: what was found in how many files."""
    checked = "1 file" if files == 1 else f"{files} files"
    if not findings:
        return f"checked {checked}, nothing found"
    counts = [(sum(finding.severity == severity for finding in findings), severity) for severity in SEVERITIES]
    parts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts if n]
    return f"checked {checked}, found {listed(parts, 'and')}"
