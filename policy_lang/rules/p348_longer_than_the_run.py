"""time longer than the run

A tool that may take ten minutes in a run that may take five is ended by the run's limit, not by its own. The same
holds for `attempt_wall`, for a breaker that would close again after the end, and, where `wall` goes on `counting
approvals`, for the time a person has to answer.

Why: the time that is written is not the one in force.

Bad:

    policy "search" lang 1
    limits {
      wall  5m
    }
    tool "search_*"  timeout 10m

Good:

    policy "search" lang 1
    limits {
      wall  5m
    }
    tool "search_*"  timeout 30s

Fix: none; a shorter time and a longer run are both right.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Scope, Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    told: set[Span] = set()
    for scope in policy.scopes:
        wall = min(scope.finite("wall"), key=lambda line: line.total or 0, default=None)
        if wall is None:
            continue
        for milliseconds, span, what in _times(policy, scope, wall):
            if milliseconds >= (wall.total or 0) and span not in told:
                told.add(span)
                why = Label(wall.value.span, "the time of the run")
                report.warn(
                    "P348",
                    f"this {what} is no shorter than the run may last",
                    span,
                    "the run ends first",
                    why,
                    help="write a shorter time, or a longer `wall`",
                )


def _times(policy: Subject, scope: Scope, wall: LimitLine) -> Iterator[tuple[int, Span, str]]:
    """Times that end with the run: how long, where, and what they are."""
    for line in scope.finite("attempt_wall"):
        yield line.data["max"], line.value.span, "time of an attempt"
    for rule in scope.tools:
        for clause in rule.node.clauses:
            if isinstance(clause, tree.Timeout) and rule.data["timeout"] is not None:
                yield rule.data["timeout"], clause.span, "`timeout`"
            within = rule.data["ask_within"] if isinstance(clause, tree.AskFirst) else None
            if within is not None and wall.data["counting_approvals"]:
                yield within, clause.span, "time for an answer"
    if scope.agent is None and not _waits_for_people(policy, wall):
        for switch in policy.merged.breakers:
            reset = next((x for x in switch.node.lines if isinstance(x, tree.ResetAfter)), None)
            if reset is not None and switch.data["reset"] is not None:
                yield switch.data["reset"], reset.span, "`reset`"


def _waits_for_people(policy: Subject, wall: LimitLine) -> bool:
    """May `wall` stand still while other clocks go on?"""
    if wall.data["counting_approvals"]:
        return False
    asking = any(rule.data["ask"] for scope in policy.scopes for rule in scope.tools)
    return asking or any(step["do"] == "ask" for line in policy.lines for step in line.data["then"])
