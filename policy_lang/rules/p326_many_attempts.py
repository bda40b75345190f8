"""more attempts than a run may make

Each client that a ladder falls back to is tried and retried as the first was. If one failing call can take more
attempts than `llm_attempts` allows, the later steps of its ladder may never be reached.

Why: a single bad minute of a provider ends the run before the fallback that was written for it.

Bad:

    policy "chat" lang 1
    limits {
      llm_attempts  4
    }
    on llm_failure rate_limit  retry 3 every 1s..5s  then fallback spare  then stop

Good:

    policy "chat" lang 1
    limits {
      llm_attempts  20
    }
    on llm_failure rate_limit  retry 3 every 1s..5s  then fallback spare  then stop

Fix: none; more attempts and fewer retries are both right.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for scope in policy.scopes:
        limits = scope.finite("llm_attempts")
        for rule in scope.failures:
            for limit in limits:
                _many_attempts(rule, limit, report)


def _many_attempts(rule: FailureLine, limit: LimitLine, report: Report) -> None:
    """One call, its retries and its fallbacks with theirs, against the attempts of the whole run."""
    retries = sum(data["times"] for data in rule.data["then"] if data["do"] == "retry")
    clients = {name for data in rule.data["then"] if data["do"] == "fallback" for name in data["clients"]}
    most = (1 + retries) * (1 + len(clients))
    if most <= (limit.total or 0) or most == 1:
        return
    made = f"{1 + retries} attempts" + (f" at each of {1 + len(clients)} clients" if clients else "")
    report.warn(
        "P326",
        f"one failing call can take {most} attempts, and `{limit.title}` allows {limit.total}",
        limit.value.span,
        "may be used up by a single call",
        Label(rule.node.span.head(2), f"{made} after {quoted(rule.data['reasons'], 'or')}"),
        help=f"write `llm_attempts {most}` or more, or fewer retries",
    )
