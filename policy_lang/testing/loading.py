"""A policy file with its tests: read, judged and compiled once, as ``policy test`` and pytest need it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from engine.core.policy import Policy
from engine.core.step import Compiled, compile
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

    def compiled(self) -> Compiled:
        """The policy, ready to decide. There must be no errors."""
        return compile(Policy.model_validate(self.policy))


def load(
    path: str,
    *,
    name: str = "",
    root: str | None = None,
    params: Mapping[str, Any] | None = None,
    clients: Iterable[str] | None = None,
) -> Suite:
    """Read a policy file and its tests; messages call it ``name``, or by its path.

    Nothing is raised for a file that is wrong: that is a finding.
    """
    from policy_lang.checking import findings_of
    from policy_lang.resolve import resolve

    name = name or path
    try:
        source = read(path, name)
    except Unreadable as problem:
        nowhere = Label(Span(Source(name, ""), 0, 0))
        return Suite(name, None, [], [], [Diagnostic(problem.code, problem.message, nowhere, help=problem.help)])
    place = os.path.realpath(path)
    folder = os.path.realpath(root) if root is not None else os.path.dirname(place)
    known = None if clients is None else tuple(clients)
    resolved = resolve(source, place, folder, params or {}, known)
    findings = findings_of(resolved)
    wrong = any(finding.is_error for finding in findings)
    return Suite(name, None if wrong else resolved.policy(), resolved.cases, resolved.sources, findings)


__all__ = ["Compiled", "Suite", "load"]
