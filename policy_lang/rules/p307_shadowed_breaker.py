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
        # Of calls that run side by side, all outcomes count: the second may trip too, but has nothing to skip then.
        if second.data["when_open"] == "skip":
            _overshadowed(second, for_good, report)


def _overshadowed(second: BreakerLine, for_good: Patterns[BreakerLine], report: Report) -> None:
    """Detectors that can never act: another breaker has switched all of their tools off for good before."""
    waiting = list(zip(second.data["trips"], second.trips, strict=True))
    for first in for_good.covering(second.data["glob"]):
        if not waiting:
            return
        if not _counts_alike(first.data, second.data):
            continue
        for detector, trip in list(waiting):
            pairs = zip(first.data["trips"], first.trips, strict=True)
            earlier = next((line for one, line in pairs if _trips_before(one, detector)), None)
            if earlier is not None:
                waiting.remove((detector, trip))
                report.warn(
                    "P307",
                    f"another breaker switches off all tools that match `{second.data['glob']}` before this `trip`",
                    trip.span,
                    "can never act",
                    Label(earlier.span, "trips first, and never resets"),
                    help="write a smaller number here, or let the other breaker match other tools",
                )


def _counts_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Do both count the same executions, the first at least as soon?"""
    alike = all(one[key] == other[key] for key in ("count_denied", "per_args"))
    return alike and (one["apply"] == other["apply"] or one["apply"] == "now")


def _trips_before(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Does a detector always trip before another of its kind, on the same executions?"""
    if one["kind"] != other["kind"] or one["kind"] == "failure_rate":
        return False
    return bool(one["n"] < other["n"] and (one["ms"] or 0) <= (other["ms"] or 0))
