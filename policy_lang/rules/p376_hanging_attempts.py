"""attempts that hang for all of the run

An attempt to which nothing comes back fails with `timeout` after `attempt_wall`, ten minutes where nothing is written.
If that is no shorter than the whole run, or if all attempts of a `retry` together are not, the time of the run is over
before the ladder for `timeout` has done what it says.

Why: the case the ladder was written for, a provider that hangs, ends the run all the same.

Bad:

    policy "chat" lang 1
    limits {
      wall  5m
    }
    on llm_failure timeout  retry 2  then fallback large  then stop

Good:

    policy "chat" lang 1
    limits {
      wall          5m
      attempt_wall  45s
    }
    on llm_failure timeout  retry 2  then fallback large  then stop

Fix: none; how long a model may take is yours to say.
"""

from __future__ import annotations

from engine.core.vocabulary import DEFAULT_ATTEMPT_WALL_MS
from policy_lang.diagnostics import Label
from policy_lang.quantities import duration_text
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    told: set[Span] = set()
    for scope in policy.scopes:
        walls = [(line.total or 0, line.value.span) for line in scope.finite("wall")]
        own = next(iter(scope.finite("attempt_wall")), None)
        attempt = own.data["max"] if own else DEFAULT_ATTEMPT_WALL_MS
        for rule in scope.failures if walls else ():
            place = rule.places.get("timeout")
            if place is not None and "timeout" in rule.data["reasons"] and place not in told:
                told.add(place)
                _hanging(rule, place, attempt, min(walls, key=lambda each: each[0]), own is not None, report)


def _hanging(
    rule: FailureLine, place: Span, attempt: int, wall: tuple[int, Span], written: bool, report: Report
) -> None:
    tries = 1 + sum(data["times"] for data in rule.data["then"] if data["do"] == "retry")
    clients = sum(len(data["clients"]) for data in rule.data["then"] if data["do"] == "fallback")
    if attempt * tries < wall[0] or (tries == 1 and not clients):
        return
    if written and attempt >= wall[0]:
        return  # that the time of an attempt is too long is told by itself
    each = f"{duration_text(attempt)}{'' if written else ' by default'}"
    many = "an attempt" if tries == 1 else f"each of {tries} attempts"
    fitting = max(1, wall[0] // 1000 // (tries + clients + 1)) * 1000
    report.note(
        "P376",
        f"{many} may hang for {each}, and the run ends after {duration_text(wall[0])}",
        place,
        "too late for what follows" if clients else "too late for all attempts",
        Label(wall[1], "the time of the run"),
        help=f"write a shorter time for one attempt, as in `attempt_wall {duration_text(fitting)}`",
    )
