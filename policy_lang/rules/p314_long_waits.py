"""waits longer than the run may last

The waits of a `retry` double from the shortest to the longest, and jitter may double each of them once more. One that
would not end before the deadline of `wall` is not begun: the next step of the ladder is taken. What a provider asks
for is not counted here.

Why: some of the attempts that the ladder promises are never made.

Bad:

    policy "chat" lang 1
    limits {
      wall  1m
    }
    on llm_failure rate_limit  retry 5 every 10s..60s  then stop

Good:

    policy "chat" lang 1
    limits {
      wall  1m
    }
    on llm_failure rate_limit  retry 3 every 1s..10s  then stop

Fix: none; shorter waits, fewer of them and more time are all right.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.quantities import duration_text
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for scope in policy.scopes:
        wall = min(scope.finite("wall"), key=lambda line: line.total or 0, default=None)
        for rule in scope.failures if wall else ():
            _long_waits(rule, wall, report)  # type: ignore[arg-type]


def _long_waits(rule: FailureLine, wall: LimitLine, report: Report) -> None:
    """The waits of one ladder, without those that a provider asks for, against the time of the whole run."""
    retries = [data for data in rule.data["then"] if data["do"] == "retry"]
    total = sum(waits(data["times"], data["least"], data["most"], data["jitter"]) for data in retries)
    if total <= (wall.total or 0):
        return
    step = next(step for step in rule.steps if isinstance(step, tree.Retry))
    report.warn(
        "P314",
        f"the waits of this `retry` can take {duration_text(total)}, longer than the run may last",
        step.span,
        "the last attempts would come too late",
        Label(wall.value.span, "the time of the run"),
        help="write fewer or shorter waits: a wait that does not end in time is not begun",
    )


def waits(times: int, least: int, most: int, jitter: bool) -> int:
    """Milliseconds that all waits of a `retry` take at most: they double, and jitter may double each once more."""
    total, wait = 0, least
    for done in range(times):
        if wait >= most or not wait:
            # The rest are all alike, and there may be very many.
            return total + (times - done) * min(wait, most)
        total += min(most, 2 * wait) if jitter else wait
        wait *= 2
    return total
