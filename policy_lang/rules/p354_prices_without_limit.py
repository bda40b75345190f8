"""prices that limit nothing

`prices` make tokens into money. Without a limit of `cost` the money is counted and reported, and ends no run.

Why: who looks after prices mostly means to bound what a run may cost.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20
    }
    prices {
      "large-1"  input $2  output $8  per 1M
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20
      cost       $1
    }
    prices {
      "large-1"  input $2  output $8  per 1M
    }

Fix: none; how much a run may cost is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    block = next((statement for statement in policy.statements if isinstance(statement, tree.Prices)), None)
    if block is None or not block.lines or policy.broken or any(scope.finite("cost") for scope in policy.scopes):
        return
    report.note(
        "P354",
        "these prices count what a run costs, and limit nothing",
        block.span.head(),
        "no limit of `cost`",
        help="write one, as in `cost $1`",
    )
