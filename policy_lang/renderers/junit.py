"""Findings as a JUnit report, which most build servers can show: a case for each file, a failure for each finding.

Notes are no failures and stand in the output of their case.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from policy_lang.diagnostics import NOTE, Diagnostic
from policy_lang.renderers import full
from policy_lang.renderers.snippet import clean, told


def render(findings: Sequence[Diagnostic], files: Sequence[str]) -> str:
    """The document, without a line end after it. Files without findings are cases that have passed."""
    cases: dict[str, list[Diagnostic]] = {name: [] for name in files}
    for finding in findings:
        cases.setdefault(finding.position[0], []).append(finding)
    failures = sum(finding.severity != NOTE for finding in findings)
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="0"'
    rows = ['<?xml version="1.0" encoding="utf-8"?>', f"<testsuites {counts}>", f'  <testsuite name="policy" {counts}>']
    for name, found in cases.items():
        rows += _case(name, found)
    return "\n".join([*rows, "  </testsuite>", "</testsuites>"])


def _case(name: str, findings: list[Diagnostic]) -> list[str]:
    head = f'    <testcase classname="policy" name={_quoted(name)} file={_quoted(name)}'
    if not findings:
        return [f"{head}/>"]
    rows = [f"{head}>"]
    for finding in findings:
        if finding.severity != NOTE:
            message = told(f"{finding.code}: {finding.message}")
            rows.append(
                f"      <failure type={_quoted(finding.severity)} message={_quoted(message)}>{_text(finding)}</failure>"
            )
    notes = [finding for finding in findings if finding.severity == NOTE]
    if notes:
        rows.append(f"      <system-out>{chr(10).join(_text(finding) for finding in notes)}</system-out>")
    return [*rows, "    </testcase>"]


def _text(finding: Diagnostic) -> str:
    return escape("\n".join(clean(line) for line in full.one(finding).split("\n")))


def _quoted(text: str) -> str:
    return quoteattr(clean(text))
