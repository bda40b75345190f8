"""waits that are all alike

`every 5s..5s` waits five seconds before each attempt. Waits that grow, or `jitter`, keep many runs that have failed
at the same moment from trying again at the same moment.

Why: a provider that is overloaded meets the whole crowd again, five seconds later.

Bad:

    policy "chat" lang 1
    on llm_failure *  retry 3 every 5s..5s  then stop

Good:

    policy "chat" lang 1
    on llm_failure *  retry 3 every 1s..5s jitter  then stop

Fix: none; what else to wait is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for scope in policy.scopes:
        for rule in scope.failures:
            for step, data in zip(rule.steps, rule.data["then"], strict=True):
                every = step.every if isinstance(step, tree.Retry) else None
                if every is None or data["least"] != data["most"] or data["jitter"] or data["times"] < 2:
                    continue
                report.note(
                    "P355",
                    "each of these waits is as long as the others",
                    every.span,
                    "many runs try again at the same moment",
                    help="let them grow, or write `jitter` behind them",
                )
