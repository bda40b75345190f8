"""Findings as SARIF 2.1.0, the format that code scanning services read.

One run; a rule for each code that occurs, with its page; a result for each finding, with its labels as related
locations and its fix. Columns count code points, as everywhere here; a file's place is as the user named it, relative
to the directory the command ran in, unless it is absolute.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from policy_lang.catalogue import Page, find
from policy_lang.diagnostics import Diagnostic, Edit, Label
from policy_lang.renderers.snippet import told
from policy_lang.source import Span

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(findings: Sequence[Diagnostic], files: Sequence[str] = ()) -> str:
    """The document, indented, without a line end after it."""
    codes = sorted({finding.code for finding in findings})
    driver: dict[str, Any] = {"name": "policy", "rules": [_rule(code, find(code)) for code in codes]}
    if found := _version():
        driver["version"] = found
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": _artifact(name)} for name in files],
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True)


def _version() -> str:
    try:
        return version("policy-lang")
    except PackageNotFoundError:
        return ""


def _rule(code: str, page: Page | None) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": code}
    if page:
        rule["shortDescription"] = {"text": page.title}
        rule["help"] = {"text": page.text}
    return rule


def _result(finding: Diagnostic, rule: int) -> dict[str, Any]:
    text = told(f"{finding.message}; {finding.help}" if finding.help else finding.message)
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": finding.severity,
        "message": {"text": text},
        "locations": [_location(finding.primary)],
    }
    if finding.secondary:
        result["relatedLocations"] = [{"id": n, **_location(label)} for n, label in enumerate(finding.secondary, 1)]
    if finding.fix:
        result["fixes"] = [_fix(finding)]
    return result


def _location(label: Label) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(label.span.source.name)}
    if label.span.source.text:
        place["region"] = _region(label.span)
    location: dict[str, Any] = {"physicalLocation": place}
    if label.text:
        location["message"] = {"text": told(label.text)}
    return location


def _region(span: Span) -> dict[str, int]:
    (line, column), (end_line, end_column) = (span.source.position(at) for at in (span.start, span.end))
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _fix(finding: Diagnostic) -> dict[str, Any]:
    changes: dict[str, list[Edit]] = {}
    for edit in finding.fix:
        changes.setdefault(edit.span.source.name, []).append(edit)
    return {
        "description": {"text": told(finding.help or finding.message)},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(name),
                "replacements": [
                    {"deletedRegion": _region(edit.span), "insertedContent": {"text": edit.replacement}}
                    for edit in edits
                ],
            }
            for name, edits in changes.items()
        ],
        "properties": {"safety": "safe" if finding.is_safe else "unsafe"},
    }


def _artifact(name: str) -> dict[str, str]:
    if os.path.isabs(name):
        return {"uri": PurePath(name).as_uri()}
    return {"uri": quote(PurePath(name).as_posix(), errors="surrogateescape")}
