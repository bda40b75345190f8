"""waits shorter than those that providers ask for

With a `rate_limit` a provider says when to come back, often after twenty seconds or a minute. That is waited for, but
never longer than the upper bound of the `retry`: with `every 1s..5s` the next attempt comes after five seconds all the
same. A ladder that goes on to another client may well be in a hurry; this is about one that does not.

Why: all attempts are used up within the time for which the provider refuses them.

Bad:

    policy "chat" lang 1
    on llm_failure rate_limit  retry 3 every 1s..5s  then stop

Good:

    policy "chat" lang 1
    on llm_failure rate_limit  retry 3 every 1s..60s  then stop

Fix: none; how long a run may wait is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.quantities import duration_text
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.rules.subject import Subject

USUAL = 20_000
"""Milliseconds: a provider's limits are mostly per minute, so that it asks for at least that."""


def check(policy: Subject, report: Report) -> None:
    told: set[int] = set()
    for scope in policy.scopes:
        for rule in scope.failures:
            if "rate_limit" in rule.data["reasons"] and id(rule.node) not in told:
                told.add(id(rule.node))
                _short(rule, report)


def _short(rule: FailureLine, report: Report) -> None:
    if any(isinstance(step, tree.Fallback | tree.Consult) for step in rule.steps):
        return
    for step, data in zip(rule.steps, rule.data["then"], strict=True):
        if isinstance(step, tree.Retry) and step.every is not None and data["most"] < USUAL:
            report.note(
                "P372",
                f"this waits {duration_text(data['most'])} at most, whatever a provider asks for with its `rate_limit`",
                step.every.high.span,
                "providers often ask for more",
                help="write a larger upper bound, as in `every 1s..60s`: it is waited for only where it is asked for",
            )
