"""tool finalization that can never run

Each tool round takes one model call, and the final answer one more. With no more calls than rounds, the calls run out
first and the run ends `incomplete` instead. In reactive mode the refused round takes a call too.

Why: whoever wrote `finalize` wants an answer when the tools are spent, and gets none.

Bad:

    policy "research" lang 1
    limits {
      llm_calls        5
      tool_iterations  5  then finalize "Answer with what you have."
    }

Good:

    policy "research" lang 1
    limits {
      llm_calls        6
      tool_iterations  5  then finalize "Answer with what you have."
    }

Fix: unsafe: it writes the number of calls that the message names, or the `finalize`.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.report import Report
from policy_lang.rules.shared import Budget, budgets, final_step, written
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    for budget in budgets(policy):
        if budget.calls.finalizes or budget.most >= budget.needed:
            continue
        if budget.rounds in budget.scope.own:
            _too_few(budget, policy.merged.final["mode"] == "reactive", report)
        else:
            _agent(budget, report)


def _too_few(budget: Budget, reactive: bool, report: Report) -> None:
    calls, needed = budget.calls, budget.needed
    reason = (
        "each round takes a call, the refused round and the answer one more each"
        if reactive
        else "each round takes a call, the final answer one more"
    )
    report.warn(
        "P301",
        "this final call can never be made: the model calls run out first",
        final_step(budget.rounds).span,
        "never reached",
        Label(calls.value.span, f"{needed} calls would be needed"),
        budget.why,
        help=f"write `llm_calls {needed}` or more; {reason}",
        fix=written(calls.value, str(needed)),
    )


def _agent(budget: Budget, report: Report) -> None:
    """Fewer calls than the policy's rounds take are what a block is for; but then nothing makes the agent answer."""
    assert budget.scope.agent is not None
    calls = budget.calls
    report.warn(
        "P301",
        f"the agent `{budget.scope.agent.name}` runs out of model calls before the final one of `tool_iterations`",
        calls.value.span,
        f"{budget.needed} calls would be needed",
        Label(final_step(budget.rounds).span, "never reached"),
        help=f"write `llm_calls {calls.value.text} then finalize`, so that it answers all the same",
        fix=_finalize(calls.node),
    )


def _finalize(line: tree.Node) -> tuple[Edit, ...]:
    """The edit that writes `then finalize` behind a limit without a ladder."""
    end = line.span.end
    return () if getattr(line, "steps", ()) else (Edit(Span(line.span.source, end, end), " then finalize"),)
