"""empty block

A block without a line says nothing: what it would change stays as it is without it.

Why: an empty `limits` looks like limits that were lost.

Bad:

    policy "chat" lang 1
    limits {
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }

Fix: none; either lines are missing or the block is not needed.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject

_BLOCKS = tree.Limits | tree.Finalization | tree.Prices | tree.Agents
"""Blocks that may be empty; of the others it is told where statements are judged."""


def check(policy: Subject, report: Report) -> None:
    for statement in policy.statements:
        if isinstance(statement, _BLOCKS) and not statement.lines:
            report.warn(
                "P368",
                f"this `{statement.keyword}` is empty",
                statement.span.head(),
                "says nothing",
                help="write a line in it, or remove it",
            )
