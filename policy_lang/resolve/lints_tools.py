"""What tool rules and breakers do to one another: rules for tools that never run, breakers that never act."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.globs import covers, overlap
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.tools import ToolLine

_RUNNING = (tree.ToolLimit, tree.Timeout, tree.AskFirst, tree.ToolRetry)
"""Clauses about tools that may run."""


def check(merged: Merged, report: Report) -> None:
    """All findings about the tools and breakers of a merged policy."""
    for line in merged.tools:
        _denied(line, merged.tools, report)
    if not any(line.data["resource"] == "wall" and line.data["max"] is not None for line in merged.limits):
        for line in merged.tools:
            _endless_ask(line, report)
    for first, second in permutations(merged.breakers, 2):
        _overshadowed(first, second, report)


# ---- tools


def _denied(line: ToolLine, others: list[ToolLine], report: Report) -> None:
    """A clause about running, where every tool that it is for is denied."""
    clause = next((c for c in line.node.clauses if isinstance(c, _RUNNING)), None)
    denial = next((other for other in others if _denies(other, line.data["glob"], others)), None)
    if clause is None or denial is None:
        return
    deny = next(c for c in denial.node.clauses if isinstance(c, tree.Deny))
    report.warn(
        "P318",
        f"this `{clause.keyword}` is for tools that never run",
        clause.span,
        "never of use",
        Label(deny.span, "denied here"),
        help=f"remove the `{clause.keyword}`, or `allow` some of the tools in the file that denies them",
    )


def _denies(denial: ToolLine, glob: str, others: list[ToolLine]) -> bool:
    """Is every tool of the pattern denied, and none of them allowed by way of exception?"""
    data = denial.data
    if not data["deny"] or not covers(data["glob"], glob):
        return False
    allowed = [o.data["glob"] for o in others if o.data["allow"] and o.data["base"] == data["base"]]
    return not any(other != data["glob"] and overlap(other, glob) for other in allowed)


def _endless_ask(line: ToolLine, report: Report) -> None:
    ask = next((c for c in line.node.clauses if isinstance(c, tree.AskFirst) and c.within is None), None)
    if ask:
        report.warn(
            "P334",
            "the run may wait for ever for an answer",
            ask.span,
            "no end of waiting, and no limit of `wall`",
            help="write how long a person has, as in `ask within 10m`; no answer in time is a refusal",
        )


# ---- breakers


def _overshadowed(first: BreakerLine, second: BreakerLine, report: Report) -> None:
    """A detector of the second breaker that can never act, because the first has switched the tools off for good."""
    one, other = first.data, second.data
    alike = all(one[key] == other[key] for key in ("count_denied", "per_args"))
    soon = one["apply"] == other["apply"] or one["apply"] == "now"
    # Of calls that run side by side, all outcomes count: the second may trip too, but has nothing to skip then.
    idle = one["reset"] is None and other["when_open"] == "skip"
    if not (alike and soon and idle and covers(one["glob"], other["glob"])):
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
