"""A policy file with its tests: read, judged and compiled once, as ``policy test`` and pytest need it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from policy_lang.cases import Case
from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.source import Source, Span, Unreadable, read


class Suite(NamedTuple):
    """The tests of one policy. ``policy`` is its JSON, ``None`` if there are errors among the ``findings``."""

    path: str
    policy: dict[str, Any] | None
    cases: list[Case]
    sources: list[Source]
    findings: list[Diagnostic]

    @property
    def errors(self) -> list[Diagnostic]:
        return [finding for finding in self.findings if finding.is_error]


def load(
    path: str,
    *,
    root: str | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
) -> Suite:
    """Read a policy file and its tests. Nothing is raised for a file that is wrong: that is a finding."""
    from policy_lang.checking import findings_of
    from policy_lang.resolve import resolve

    try:
        source = read(path, path)
    except Unreadable as problem:
        nowhere = Label(Span(Source(path, ""), 0, 0))
        return Suite(path, None, [], [], [Diagnostic(problem.code, problem.message, nowhere, help=problem.help)])
    place = os.path.realpath(path)
    folder = os.path.realpath(root) if root is not None else os.path.dirname(place)
    known = None if clients is None else tuple(clients)
    resolved = resolve(source, place, folder, params or {}, known)
    findings = findings_of(resolved)
    wrong = any(finding.is_error for finding in findings)
    return Suite(path, None if wrong else resolved.policy(), resolved.cases, resolved.sources, findings)


def has_tests(path: str) -> bool:
    """Might this file have tests? Looks at its text only, so that a directory of policies costs next to nothing."""
    try:
        text = read(path, path).text
    except Unreadable:
        return True
    return any(line.lstrip().startswith(("test ", 'test"', "import ", 'import"')) for line in text.splitlines())
