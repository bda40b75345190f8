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
    Entry("P317", "p317_no_such_tool", "declared tools"),
    Entry("P318", "p318_denied_tools", "tools", always=True),
    Entry("P319", "p319_unused_name", "names", always=True),
    Entry("P321", "p321_unhandled_reason", "failures", NOTE),
    Entry("P322", "p322_trivial_claim"),
    Entry("P324", "p324_untested_boundary", "limits", NOTE),
    Entry("P326", "p326_many_attempts", "failures", always=True),
    Entry("P327", "p327_unbounded_run", "limits"),
    Entry("P328", "p328_single_call", "limits", always=True),
    Entry("P331", "p331_dead_rule", "states"),
    Entry("P332", "p332_dead_text", "limits", always=True),
    Entry("P333", "p333_unbounded_tree", "agents", always=True),
    Entry("P334", "p334_endless_ask", "tools", always=True),
    Entry("P337", "p337_host_cannot", "host"),
    Entry("P341", "p341_idle_reserve", "limits", always=True),
    Entry("P342", "p342_idle_allow", "tools", always=True),
    Entry("P343", "p343_whole_reserve", "limits", always=True),
    Entry("P344", "p344_clause_twice", "tools", always=True),
    Entry("P345", "p345_no_pool", "agents", always=True),
    Entry("P346", "p346_nothing_to_carve", "agents", always=True),
    Entry("P347", "p347_nothing_to_spend", "limits"),
    Entry("P348", "p348_longer_than_the_run", "limits"),
    Entry("P349", "p349_reserve_above_output", "declared clients"),
    Entry("P350", "p350_smaller_window", "declared clients"),
    Entry("P351", "p351_never_trips", "breakers"),
    Entry("P352", "p352_told_too_late", "thresholds"),
    Entry("P353", "p353_denied_already", "tools"),
    Entry("P354", "p354_prices_without_limit", "", NOTE),
    Entry("P355", "p355_steady_waits", "failures", NOTE),
    Entry("P356", "p356_same_for_agent", "agents"),
    Entry("P357", "p357_pool_of_nobody", "agents"),
    Entry("P358", "p358_reached_never", "limits"),
    Entry("P359", "p359_tool_limit_above_all", "tools"),
    Entry("P360", "p360_looser_exception", "tools"),
    Entry("P361", "p361_ladder_of_unlimited", "limits"),
    Entry("P362", "p362_idle_preference", "limits"),
    Entry("P363", "p363_idle_reactive"),
    Entry("P364", "p364_breaker_of_denied", "breakers"),
    Entry("P365", "p365_foreign_pattern"),
    Entry("P366", "p366_repeats_base", "limits", NOTE),
    Entry("P367", "p367_idle_import"),
    Entry("P368", "p368_empty_block"),
    Entry("P369", "p369_live_above_children", "agents"),
    Entry("P370", "p370_client_without_price", "declared clients"),
    Entry("P371", "p371_small_reserve", "limits", NOTE),
    Entry("P372", "p372_short_waits", "failures", NOTE),
    Entry("P373", "p373_one_name_two_functions"),
    Entry("P374", "p374_no_call_left", "failures"),
    Entry("P375", "p375_slower_than_possible", "breakers"),
    Entry("P376", "p376_hanging_attempts", "failures", NOTE),
    Entry("P377", "p377_unfilled_placeholder"),
    Entry("P378", "p378_repeated_test"),
    Entry("P379", "p379_unlikely_price", "", NOTE),
    Entry("P380", "p380_room_for_one", "agents", NOTE),
    Entry("P381", "p381_idle_detector", "breakers"),
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


def looked_for(rules: Iterable[Entry], policy: Subject) -> set[str]:
    """Codes that would have been told if there were anything to tell: of the others nobody knows.

    Some rules look at what is known around the policy only, and most do not look at what cannot be read.
    """
    if policy.broken or any(finding.is_error for finding in policy.resolved.findings):
        return set()
    unknown = {name for name, known in _known(policy).items() if not known}
    return {rule.code for rule in rules if rule.about not in unknown}


def _there(policy: Subject) -> set[str]:
    """What this policy has, and what is known around it."""
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
    return found | {name for name, there in _known(policy).items() if there}


def _known(policy: Subject) -> dict[str, bool]:
    """What may be known around a policy, and is it?"""
    around = policy.around
    return {
        "declared tools": around.tools is not None,
        "declared clients": bool(around.clients),
        "host": around.host is not None,
        "states": around.seconds is not None,
    }


__all__ = ["ALWAYS", "BY_CODE", "NOTE", "OFF", "RULES", "Entry", "looked_for", "run"]
