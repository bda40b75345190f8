"""Rules about what a policy says in vain or by mistake. One file a rule; its docstring is the page about its code.

A rule is a module with ``check(policy: Subject, report: Report)``. It reports, and changes nothing. This table says
which rules there are; a module is imported when its rule is due, so that a check pays for no rule it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from policy_lang.diagnostics import NOTE, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from policy_lang.report import Report
    from policy_lang.rules.subject import Subject

OFF: Final = "off"
"""The level of a rule that does not run."""


class Entry(NamedTuple):
    """A rule: its code, its module in this package, what must be there for it to be due (``""``: anything), how grave
    its findings are, and whether ``policy check`` runs it too: then its finding is a contradiction, not an advice."""

    code: str
    module: str
    about: str = ""
    level: str = WARNING
    always: bool = False


RULES: Final[tuple[Entry, ...]] = (
    Entry("P301", "p301_never_final", "limits", always=True),
    Entry("P302", "p302_fewer_rounds", "limits", always=True),
    Entry("P305", "p305_capped_extension", "limits", always=True),
    Entry("P307", "p307_shadowed_breaker", "breakers", always=True),
    Entry("P308", "p308_above_parent", "agents", always=True),
    Entry("P309", "p309_no_agents", "agents", always=True),
    Entry("P314", "p314_long_waits", "failures", always=True),
    Entry("P318", "p318_denied_tools", "tools", always=True),
    Entry("P319", "p319_unused_name", "names", always=True),
    Entry("P326", "p326_many_attempts", "failures", always=True),
    Entry("P328", "p328_single_call", "limits", always=True),
    Entry("P332", "p332_dead_text", "limits", always=True),
    Entry("P333", "p333_unbounded_tree", "agents", always=True),
    Entry("P334", "p334_endless_ask", "tools", always=True),
    Entry("P341", "p341_idle_reserve", "limits", always=True),
    Entry("P342", "p342_idle_allow", "tools", always=True),
    Entry("P343", "p343_whole_reserve", "limits", always=True),
    Entry("P344", "p344_clause_twice", "tools", always=True),
    Entry("P345", "p345_no_pool", "agents", always=True),
    Entry("P346", "p346_nothing_to_carve", "agents", always=True),
)
"""All of them, by code."""

BY_CODE: Final = {rule.code: rule for rule in RULES}

ALWAYS: Final = tuple(rule for rule in RULES if rule.always)
"""What ``policy check`` runs, and loading a policy."""


def run(rules: Iterable[Entry], policy: Subject, report: Report) -> None:
    """Let each rule look at the policy, as far as there is anything for it to look at."""
    there = _there(policy)
    for rule in rules:
        if rule.about in there:
            import_module(f"policy_lang.rules.{rule.module}").check(policy, report)


def _there(policy: Subject) -> set[str]:
    """What this policy has."""
    found = {""}
    for scope in policy.scopes:
        for name in ("limits", "thresholds", "failures", "tools"):
            if getattr(scope, name):
                found.add(name)
    if policy.merged.breakers:
        found.add("breakers")
    if policy.resolved.names.own:
        found.add("names")
    if policy.agents.span or policy.agents.agents:
        found.add("agents")
    return found


__all__ = ["ALWAYS", "BY_CODE", "NOTE", "OFF", "RULES", "Entry", "run"]
