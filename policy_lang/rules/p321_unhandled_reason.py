"""failure that no rule handles

A policy that has rules for some failed calls has none for others that are as common: `rate_limit`, `overloaded`,
`timeout` and `network` pass by themselves, and a `retry` is what cures them. Without a rule the run ends `failed` at
the first of them.

Why: whoever wrote a ladder for one of them has thought of failures, and mostly means all that pass.

Bad:

    policy "chat" lang 1
    on llm_failure rate_limit  retry 3  then stop

Good:

    policy "chat" lang 1
    on llm_failure rate_limit, overloaded, timeout, network  retry 3  then stop

Fix: none; what helps against which failure is yours to say.
"""

from __future__ import annotations

from engine.core.vocabulary import REASONS
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.rules.subject import Subject

_PASSING = ("rate_limit", "overloaded", "timeout", "network")
"""What a later attempt may well not meet again."""


def check(policy: Subject, report: Report) -> None:
    rules = policy.main.failures
    named = {reason for rule in rules for reason in rule.data["reasons"]}
    open_ones = [reason for reason in _PASSING if not {reason, REASONS[reason], "*"} & named]
    own = [rule for rule in rules if rule.node.span.source is policy.unit.source]
    if open_ones and own and not policy.broken:
        report.note(
            "P321",
            f"a call that fails with {quoted(open_ones)} ends the run at once",
            own[-1].node.span.head(2),
            "no rule for it, here or elsewhere",
            help="name it in a rule of its own, or beside another reason",
        )
