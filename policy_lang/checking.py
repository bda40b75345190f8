"""From what files say together to what is told about it: rules, suppressions, levels, order.

Data in, data out; no file is read here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from policy_lang.diagnostics import ERROR, Diagnostic, in_order
from policy_lang.report import Report
from policy_lang.resolve import Resolved
from policy_lang.rules import ALWAYS, OFF, RULES, Entry, looked_for, run
from policy_lang.rules.subject import NOWHERE, Subject, Surroundings
from policy_lang.suppressions import suppress


class Judgement(NamedTuple):
    """Which rules look at a policy, and how grave is what they find.

    ``rules`` are those that run; ``levels`` says how grave a rule's findings are where it is not as the rule has it, in
    the words of ``diagnostics.SEVERITIES`` or ``OFF``; what is in ``kept`` no comment silences.
    """

    rules: Sequence[Entry] = ALWAYS
    levels: Mapping[str, str] = {}
    kept: Collection[str] = ()
    around: Surroundings = NOWHERE


USUAL = Judgement()
"""What ``policy check`` and loading go by."""

STRICT = Judgement(RULES)
"""All rules, as they have it themselves: what ``policy lint`` goes by where nothing is set."""


def findings_of(resolved: Resolved, judgement: Judgement = USUAL) -> list[Diagnostic]:
    """Everything found, in order. Warnings are told about the file itself only: its bases have checks of their own."""
    report = Report()
    report.findings += resolved.findings
    rules = [rule for rule in judgement.rules if judgement.levels.get(rule.code) != OFF]
    policy = Subject(resolved, judgement.around)
    run(rules, policy, report)
    source = resolved.unit.source
    found = [f for f in report.findings if f.is_error or (f.primary.span.source is source and not _off(f, judgement))]
    found = suppress(resolved.unit, found, looked_for(rules, policy), judgement.kept)
    return in_order([_levelled(f, judgement.levels) for f in found], resolved.sources)


def _off(finding: Diagnostic, judgement: Judgement) -> bool:
    return judgement.levels.get(finding.code) == OFF


def _levelled(finding: Diagnostic, levels: Mapping[str, str]) -> Diagnostic:
    """An error is one whatever anybody has set: the policy has no meaning."""
    level = levels.get(finding.code)
    return finding if level is None or finding.severity == ERROR else finding._replace(severity=level)
