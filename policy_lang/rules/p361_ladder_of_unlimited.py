"""ladder of what has no limit

`unlimited` is never reached, so that no step behind it is ever taken.

Why: the ladder looks as if it ended something.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20
      tokens     unlimited  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20
      tokens     unlimited
    }

Fix: none; either a number is missing or the ladder is not needed.
"""

from __future__ import annotations

from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for line in policy.lines:
        if line.data["max"] is None and line.node.steps:
            report.warn(
                "P361",
                f"`{line.title}` is unlimited, so this step is never taken",
                line.node.steps[0].span,
                "never reached",
                help="write a number, or remove the ladder",
            )
