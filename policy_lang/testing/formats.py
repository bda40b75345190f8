"""Results of tests for other programs: one JSON document, or a JUnit report as most build servers show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from policy_lang.diagnostics import Diagnostic
from policy_lang.renderers import full
from policy_lang.renderers.snippet import clean
from policy_lang.source import Source
from policy_lang.testing.outcome import Failure, Result
from policy_lang.testing.report import failed, rule_words, summary
from policy_lang.testing.table import HEAD, rows

VERSION = 1


class Ran(NamedTuple):
    """A file and how its tests went; none of them has run where the file has ``errors``."""

    path: str
    results: list[Result]
    sources: list[Source]
    errors: list[Diagnostic]


def as_json(files: Sequence[Ran], more: Mapping[str, Any] | None = None) -> str:
    """``{"version": 1, "tests": […], "errors": […], "passed": n, "failed": n}``, indented, without a line end. ``more``
    is what else was asked for, by name."""
    tests = [_test(ran, result) for ran in files for result in ran.results]
    errors = [
        {"file": finding.position[0], "line": finding.position[1], "code": finding.code, "message": finding.message}
        for ran in files
        for finding in ran.errors
    ]
    bad = sum(test["status"] == "failed" for test in tests)
    document = {
        "version": VERSION,
        "tests": tests,
        "errors": errors,
        "passed": len(tests) - bad,
        "failed": bad,
        **(more or {}),
    }
    return json.dumps(document, indent=2, ensure_ascii=True)


def _test(ran: Ran, result: Result) -> dict[str, Any]:
    case, failure = result.case, result.failure
    return {
        "file": ran.path,
        "name": case.name,
        "defined": {"file": case.span.source.name, "line": case.span.line},
        "status": "passed" if failure is None else "failed",
        "seconds": round(result.seconds, 6),
        "failure": None if failure is None else _failure(failure, result),
    }


def _failure(failure: Failure, result: Result) -> dict[str, Any]:
    source, span = failure.span.source, failure.span
    (line, column), (end_line, end_column) = source.position(span.start), source.position(span.end)
    return {
        "kind": failure.kind,
        "message": summary(failure),
        "expected": failure.expected or None,
        "got": failure.problem if failure.expected else None,
        "because": rule_words(failure.because) or None,
        "possible": list(failure.could),
        "file": source.name,
        "start": {"line": line, "column": column},
        "end": {"line": end_line, "column": end_column},
        "events": [dict(zip(HEAD[1:], row[1:], strict=True)) for row in rows(result.compiled, result.records, "")],
    }


def as_junit(files: Sequence[Ran]) -> str:
    """The report, without a line end. A file that cannot be tested is a case with an error."""
    bad = sum(result.failure is not None for ran in files for result in ran.results)
    broken = sum(bool(ran.errors) for ran in files)
    tests = broken + sum(len(ran.results) for ran in files)
    time = sum(result.seconds for ran in files for result in ran.results)
    counts = f'tests="{tests}" failures="{bad}" errors="{broken}" skipped="0" time="{time:.6f}"'
    out = ['<?xml version="1.0" encoding="utf-8"?>', f"<testsuites {counts}>", f'  <testsuite name="policy" {counts}>']
    for ran in files:
        out += _broken(ran) if ran.errors else [_case(ran, result) for result in ran.results]
    return "\n".join([*out, "  </testsuite>", "</testsuites>"])


def _broken(ran: Ran) -> list[str]:
    message = f"{len(ran.errors)} errors: the policy cannot be used" if len(ran.errors) > 1 else ran.errors[0].message
    head = f"    <testcase classname={_quoted(ran.path)} name={_quoted(ran.path)} file={_quoted(ran.path)}>"
    text = _text(full.render(ran.errors))
    return [head, f"      <error message={_quoted(message)}>{text}</error>", "    </testcase>"]


def _case(ran: Ran, result: Result) -> str:
    case, failure = result.case, result.failure
    head = (
        f"    <testcase classname={_quoted(ran.path)} name={_quoted(case.name)} file={_quoted(case.span.source.name)}"
        f' line="{case.span.line}" time="{result.seconds:.6f}"'
    )
    if failure is None:
        return f"{head}/>"
    text = _text(failed(ran.path, result, ran.sources))
    message = _quoted(summary(failure))
    return f"{head}>\n      <failure message={message}>{text}</failure>\n    </testcase>"


def _text(text: str) -> str:
    return escape("\n".join(clean(line) for line in text.split("\n")))


def _quoted(text: str) -> str:
    return quoteattr(clean(text))
