"""instruction that is never sent

Where several limits make the same call the final one, it carries the instruction of the preferred limit, by default
`llm_calls`. If that is always reached in time, the other limit's instruction is dead text.

Why: whoever improves that text sees no difference.

Bad:

    policy "research" lang 1
    limits {
      llm_calls        6  then finalize
      tool_iterations  5  then finalize "Write down what you have found."
    }

Good:

    policy "research" lang 1
    limits {
      llm_calls        7  then finalize
      tool_iterations  5  then finalize "Write down what you have found."
    }

Fix: none; one more call and another preference are both right.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.shared import Budget, budgets, final_step, prefers
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    if not prefers(policy.merged.final, "llm_calls", "tool_iterations"):
        return
    for budget in budgets(policy):
        if budget.rounds in budget.scope.own and budget.calls.finalizes and budget.most <= budget.needed:
            _dead_text(budget, report)


def _dead_text(budget: Budget, report: Report) -> None:
    step = final_step(budget.rounds)
    text = getattr(step, "text", None) or getattr(step, "resolver", None)
    if text is None:
        return
    report.warn(
        "P332",
        "this instruction is never sent: the last model call carries that of `llm_calls`",
        text.span,
        "never sent",
        Label(budget.calls.resource_span, "preferred, and reached no later"),
        help=f"write `llm_calls {budget.needed + 1}` or more, or `prefer tool_iterations over llm_calls`",
    )
