"""slower than a tool can be

`trip slow D of N` looks for executions that take D or longer. A tool with a shorter `timeout` is ended before, and in
a run that is over before nothing takes so long.

Why: the breaker waits for something that cannot happen, and slow tools are never switched off.

Bad:

    policy "search" lang 1
    tool "search_*"  timeout 20s
    breaker "search_*" {
      trip   slow 30s of 3
      reset  never
    }

Good:

    policy "search" lang 1
    tool "search_*"  timeout 20s
    breaker "search_*" {
      trip   slow 10s of 3
      reset  never
    }

Fix: none; a longer `timeout` and a shorter time here are both right.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.glob_index import Patterns
from policy_lang.quantities import duration_text
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import indexed
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    timed, retried = indexed(policy.merged.tools, "timeout"), indexed(policy.merged.tools, "retry")
    walls = [(line.total or 0, line.value.span) for line in policy.main.finite("wall")]
    for switch in policy.merged.breakers:
        bounds = [*walls, *_timeouts(switch.data["glob"], timed, retried)]
        if not bounds:
            continue
        most, place = min(bounds, key=lambda bound: bound[0])
        for detector, trip in zip(switch.data["trips"], switch.trips, strict=True):
            if detector["kind"] == "slow" and detector["ms"] > most:
                report.warn(
                    "P375",
                    f"no execution takes {duration_text(detector['ms'])}: it is ended after {duration_text(most)}",
                    trip.value.span,
                    "can never act",
                    Label(place, "ends it before"),
                    help="write a shorter time here, or a longer one there",
                )


def _timeouts(glob: str, timed: Patterns[ToolLine], retried: Patterns[ToolLine]) -> list[tuple[int, Span]]:
    """What ends all executions of a pattern; nothing where they may be tried again, which takes time of its own."""
    if next(retried.overlapping(glob), None) is not None:
        return []
    found: list[tuple[int, Span]] = []
    for line in timed.covering(glob):
        clause = next(c for c in line.node.clauses if isinstance(c, tree.Timeout))
        found.append((line.data["timeout"], clause.span))
    return found
