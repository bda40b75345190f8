"""tool that may run more often than all tools

The `limit` of a tool counts its executions in a run, `tool_calls` those of all tools. A tool's limit above that is
never reached.

Why: its text, which tells the model to go on without the tool, is never sent: all tools end at once.

Bad:

    policy "search" lang 1
    limits {
      tool_calls  20
      llm_calls   30
    }
    tool "search_*"  limit 50

Good:

    policy "search" lang 1
    limits {
      tool_calls  20
      llm_calls   30
    }
    tool "search_*"  limit 10

Fix: none; which of the two numbers is meant is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import tool_scopes


def check(policy: Subject, report: Report) -> None:
    for scope in tool_scopes(policy):
        totals = [line for line in scope.limits if line.data["resource"] == "tool_calls" and line.total is not None]
        least = min(totals, key=lambda line: line.total or 0, default=None)
        for line in scope.tools if least is not None else ():
            assert least is not None
            if line.data["limit"] is None or line.data["limit"] <= (least.total or 0):
                continue
            clause = next(c for c in line.node.clauses if isinstance(c, tree.ToolLimit))
            report.warn(
                "P359",
                f"no tool runs {line.data['limit']} times: all together have {least.total} calls",
                clause.span,
                "never reached",
                Label(least.value.span, "the limit of all tools"),
                help=f"write a smaller limit, or a larger `{least.title}`",
            )
