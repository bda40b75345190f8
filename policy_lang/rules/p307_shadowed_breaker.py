"""breaker in the shadow of another

Several breakers may match a tool, and any open one skips it. One that never resets and trips earlier, for the same
kind of failures, leaves the other nothing to do. A breaker that resets leaves it something: the second may then count
on, and trip for longer.

Why: the second breaker looks as if it protected something.

Bad:

    policy "search" lang 1
    breaker "*" {
      trip   failures 2
      reset  never
    }
    breaker "search_*" {
      trip   failures 4
      reset  never
    }

Good:

    policy "search" lang 1
    breaker "*" {
      trip   failures 4
      reset  never
    }
    breaker "search_*" {
      trip   failures 2
      reset  never
    }

Fix: none; only you know which number is the right one.
"""

from __future__ import annotations

from typing import Any

from policy_lang.diagnostics import Label
from policy_lang.glob_index import Patterns
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    breakers = policy.merged.breakers
    for_good = Patterns((line.data["glob"], line) for line in breakers if line.data["reset"] is None)
    for second in breakers:
        for first in for_good.covering(second.data["glob"]):
            _overshadowed(first, second, report)


def _overshadowed(first: BreakerLine, second: BreakerLine, report: Report) -> None:
    """A detector of the second breaker that can never act: the first has switched all of its tools off for good."""
    one, other = first.data, second.data
    alike = all(one[key] == other[key] for key in ("count_denied", "per_args"))
    soon = one["apply"] == other["apply"] or one["apply"] == "now"
    # Of calls that run side by side, all outcomes count: the second may trip too, but has nothing to skip then.
    idle = other["when_open"] == "skip"
    if not (alike and soon and idle):
        return
    for detector, trip in zip(other["trips"], second.trips, strict=True):
        earlier = [pair for pair in zip(one["trips"], first.trips, strict=True) if _trips_before(pair[0], detector)]
        if earlier:
            report.warn(
                "P307",
                f"another breaker switches off all tools that match `{other['glob']}` before this `trip`",
                trip.span,
                "can never act",
                Label(earlier[0][1].span, "trips first, and never resets"),
                help="write a smaller number here, or let the other breaker match other tools",
            )


def _trips_before(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Does a detector always trip before another of its kind, on the same executions?"""
    if one["kind"] != other["kind"] or one["kind"] == "failure_rate":
        return False
    return bool(one["n"] < other["n"] and (one["ms"] or 0) <= (other["ms"] or 0))
