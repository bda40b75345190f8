"""breaker that can never trip

A breaker that looks for five failures of a tool that may run three times in a run never sees them: the tool's own
`limit`, or that of `tool_calls`, is used up first. What a breaker has seen is forgotten at the end of the run.

Why: the breaker looks as if it protected something.

Bad:

    policy "search" lang 1
    breaker "search_*" {
      trip   failures 5
      reset  never
    }
    tool "search_*"  limit 3

Good:

    policy "search" lang 1
    breaker "search_*" {
      trip   failures 2
      reset  never
    }
    tool "search_*"  limit 3

Fix: none; which of the two numbers is meant is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import indexed, most_executions
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    limited = indexed(policy.merged.tools, "limit")
    total = most_executions(policy)
    for switch in policy.merged.breakers:
        if switch.data["count_denied"] == "failure":
            continue  # a refusal is no execution, and there may be any number of them
        most: list[tuple[int, Span]] = [(total.total or 0, total.value.span)] if total else []
        for line in limited.covering(switch.data["glob"]):
            clause = next(c for c in line.node.clauses if isinstance(c, tree.ToolLimit))
            most.append((line.data["limit"], clause.span))
        if most:
            _never(switch, *min(most, key=lambda pair: pair[0]), report)


def _never(switch: BreakerLine, most: int, place: Span, report: Report) -> None:
    for detector, trip in zip(switch.data["trips"], switch.trips, strict=True):
        if detector["n"] > most:
            report.warn(
                "P351",
                f"this `trip` looks at {detector['n']} executions, and no tool has more than {most} in a run",
                trip.span,
                "can never act",
                Label(place, "used up first"),
                help="write a smaller number here, or a larger limit",
            )
