"""fewer rounds than written

When `llm_calls` finalizes, its last call is the final one and has no tools, so N calls allow N-1 rounds at most.

Why: the number behind `tool_iterations` is one that nobody ever sees: who reads the policy expects more rounds than
there are.

Bad:

    policy "research" lang 1
    limits {
      llm_calls        5  then finalize
      tool_iterations  5  then finalize
    }

Good:

    policy "research" lang 1
    limits {
      llm_calls        6  then finalize
      tool_iterations  5  then finalize
    }

Fix: unsafe: it writes the number of calls that the message names.
"""

from __future__ import annotations

from policy_lang.report import Report
from policy_lang.rules.shared import Budget, budgets, written
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for budget in budgets(policy):
        if budget.rounds in budget.scope.own and budget.calls.finalizes and budget.most - 1 < budget.total:
            _fewer(budget, report)


def _fewer(budget: Budget, report: Report) -> None:
    calls, most, total = budget.calls, budget.most, budget.total
    can = max(0, most - 1)
    rounds = "no round" if can == 0 else "1 round" if can == 1 else f"{can} rounds"
    report.warn(
        "P302",
        f"the last model call is final, so {rounds} can run instead of {total}",
        calls.value.span,
        f"{most} calls, the last without tools",
        budget.why,
        help=f"write `llm_calls {total + 1}` or more for all rounds",
        fix=written(calls.value, str(total + 1)),
    )
