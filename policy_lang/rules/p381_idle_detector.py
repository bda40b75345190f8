"""detector that never decides

Any `trip` of a breaker opens it. Failures with the same arguments, or with two that alternate, are failures in a row
as well: with `failures 3`, neither `same_args 3` nor `alternating 4` ever comes first. A breaker `per args` looks at
each set of arguments by itself, and nothing alternates there.

Why: the line looks as if it caught something that the others let pass.

Bad:

    policy "search" lang 1
    breaker "search_*" {
      trip   failures 3
      trip   same_args 3
      reset  never
    }

Good:

    policy "search" lang 1
    breaker "search_*" {
      trip   failures 5
      trip   same_args 3
      reset  never
    }

Fix: none; a smaller number here and a larger one there are both right.
"""

from __future__ import annotations

from typing import Any

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.rules.subject import Subject
from policy_lang.source import Span

_FAILING = ("same_args", "alternating", "failures")
"""What looks at failures in a row."""


def check(policy: Subject, report: Report) -> None:
    for switch in policy.merged.breakers:
        for detector, trip in zip(switch.data["trips"], switch.trips, strict=True):
            if detector["kind"] == "alternating" and switch.data["per_args"]:
                report.warn(
                    "P381",
                    "nothing alternates in a breaker `per args`",
                    trip.span,
                    "can never act",
                    help="remove it, or `per args`",
                )
            elif detector["kind"] in _FAILING:
                _overtaken(detector, switch, trip.span, report)


def _overtaken(detector: dict[str, Any], switch: BreakerLine, span: Span, report: Report) -> None:
    for other, trip in zip(switch.data["trips"], switch.trips, strict=True):
        if other is not detector and _sooner(other, detector, switch.data["per_args"]):
            report.warn(
                "P381",
                f"another `trip` of this breaker always comes before `{detector['kind']} {detector['n']}`",
                span,
                "never decides",
                Label(trip.span, "comes first"),
                help="write a larger number there, or remove this one",
            )
            return


def _sooner(one: dict[str, Any], other: dict[str, Any], per_args: bool) -> bool:
    """Whenever the other detector trips, has this one done so before, or does so now and more often?"""
    no_longer, shorter = bool(one["n"] <= other["n"]), bool(one["n"] < other["n"])
    if one["kind"] == "failures":
        return other["kind"] != "failures" and no_longer
    if one["kind"] == "failure_rate":
        return no_longer
    # With one set of arguments, failures in a row are failures with the same arguments.
    return per_args and one["kind"] == "same_args" and other["kind"] == "failures" and shorter
