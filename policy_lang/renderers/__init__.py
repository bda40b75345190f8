"""Findings as text: ``full`` for people, ``concise`` for one line each, ``json`` for tools.

Each renderer is a module with ``render(findings)``. They read findings and sources, and change
neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from policy_lang.diagnostics import Diagnostic


def tally(findings: Sequence[Diagnostic], files: int) -> str:
    """The closing line: what was found in how many files."""
    checked = "1 file" if files == 1 else f"{files} files"
    if not findings:
        return f"checked {checked}, nothing found"
    errors = sum(finding.is_error for finding in findings)
    warnings = len(findings) - errors
    parts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    return f"checked {checked}, found {' and '.join(parts)}"
