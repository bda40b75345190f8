"""Limits of other frameworks to a policy.

Bytes of a settings file in, a policy's text out, with an account of every key: what became of it, or why it is not
in the policy. Knows no disk and no terminal. No command but `policy import` loads any of it.
"""

from __future__ import annotations

from typing import NamedTuple

from policy_lang import checks
from policy_lang.diagnostics import Diagnostic
from policy_lang.formatting import formatted
from policy_lang.importing.boundaries import tests
from policy_lang.importing.choosing import by_keys, by_name
from policy_lang.importing.draft import Draft
from policy_lang.importing.framework import Entry, Framework, Import
from policy_lang.importing.frameworks import all_frameworks
from policy_lang.importing.reading import read
from policy_lang.importing.values import Place, Problem, Unusable
from policy_lang.renderers.snippet import clean

__all__ = ["Imported", "Unusable", "imported"]


class Imported(NamedTuple):
    """``text`` is the policy, in its layout. ``findings`` is what `policy check` says about it, in places of ``text``:
    settings may contradict each other."""

    text: str
    framework: Framework
    carried: list[Entry]
    lost: list[Entry]
    beside: list[Entry]
    findings: list[Diagnostic]


def imported(data: bytes, file: str, name: str, framework: str = "") -> Imported:
    """The policy called ``name`` that a file of settings amounts to.

    ``file`` is what the file is called; its ending tells the notation. ``framework`` is a name that `--from` takes, or
    empty to tell it by the keys. Raises ``Unusable``.
    """
    known = all_frameworks()
    chosen = by_name(framework, known) if framework else None
    settings = read(data, file)
    account = Import(chosen or by_keys(settings, known), Draft(name))
    account.run(settings)
    if account.problems:
        raise Unusable(*account.problems)
    if account.draft.is_empty:
        raise Unusable(_nothing(account))
    account.draft.head = _head(account, file)
    text = _only_needed(formatted(account.draft.text(tests(account.draft))))
    _, findings = checks(text, f"{name}.policy")
    if wrong := [finding for finding in findings if finding.is_error]:
        raise Unusable(*(Problem(Place(), f"these settings make no policy: {one.message}", one.help) for one in wrong))
    return Imported(text, account.framework, account.carried, account.lost, account.beside, findings)


def _only_needed(text: str) -> str:
    """The policy without the suppressions that silence nothing: whether a finding is due is for its rule to say."""
    idle = {finding.primary.span.line for finding in checks(text)[1] if finding.code == "P900"}
    lines = text.splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines, 1) if number not in idle)


def _nothing(account: Import) -> Problem:
    """Nothing came of it: the first reason is the likeliest to help."""
    title = account.framework.title
    if account.lost:
        first = account.lost[0]
        return Problem(first.at, f"nothing here can be a limit of a policy; `{clean(first.path)}`: {first.said}")
    return Problem(Place(), f"no limit of {title} is set here, so there is nothing to write")


def _head(account: Import, file: str) -> list[str]:
    framework = account.framework
    version = f" ({framework.version})" if framework.version else ""
    whose = f"limits of {framework.title}{version}" if framework.name != "plain" else framework.title
    head = [f"Imported from {clean(file)}: {whose}. Above each line stands what it comes from."]
    if account.lost:
        head.append("Not carried over:")
    head += [f"- {clean(entry.path)}{_line(entry.at)}: {entry.said}" for entry in account.lost]
    return head


def _line(at: Place) -> str:
    return f", line {at.line}" if at.line else ""
