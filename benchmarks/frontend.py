"""From the text of a policy to its ``step``, in a warm process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import policy_lang
from benchmarks.harness import Case, Effort, measure
from benchmarks.report import Section
from engine.core.policy import Policy
from engine.core.step import compile
from policy_lang.parser import parse
from policy_lang.source import Source

SAMPLE = Path(__file__).parent / "sample.policy"

ANCHOR = "`ast.parse` of 60 lines of Python"


def sections(effort: Effort) -> Iterator[Section]:
    text = SAMPLE.read_text()
    source, policy = Source("sample.policy", text), policy_lang.loads(text)
    stored, python = policy.model_dump_json(), _python()
    _, findings = policy_lang.checks(text)
    assert findings == []
    assert Policy.model_validate_json(stored) == policy
    cases = (
        Case(ANCHOR, lambda: ast.parse(python)),
        Case("parse: text to tree", lambda: parse(source)),
        Case("check: text to findings and JSON", lambda: policy_lang.checks(text)),
        Case("load: text to `Policy`", lambda: policy_lang.loads(text)),
        Case("the same `Policy` from its JSON", lambda: Policy.model_validate_json(stored)),
        Case("compile: `Policy` to `step`", lambda: compile(policy)),
        Case("text to `step`", lambda: compile(policy_lang.loads(text))),
    )
    times = measure(cases, effort.longer(4))
    section = Section(
        "From text to step",
        f"A policy of {len(text.splitlines())} lines with {len(policy.limits)} limits, prices, thresholds, tool rules "
        "(`benchmarks/sample.policy`) in a process that has done it before.",
        "call",
        ANCHOR,
    )
    bars = {"parse: text to tree": 0.003, "text to `step`": 0.012}
    for case in cases:
        section.timed(times, case.name, at_most=bars.get(case.name))
    yield section


def _python() -> str:
    """Sixty lines of ordinary Python: what its own parser, in C, makes of a file as long."""
    lines = Path(__file__).with_name("task.py").read_text().splitlines()
    start = lines.index("class Twin:")
    body = "\n".join(lines[start : start + 60])
    while True:
        try:
            ast.parse(body)
            return body
        except SyntaxError:
            body = body.rpartition("\n")[0]
