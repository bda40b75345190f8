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
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import most_executions


def check(policy: Subject, report: Report) -> None:
    for scope in policy.scopes:
        # The policy's own rules are for all agents, so the one that may run most tools is what counts.
        lines = [*scope.finite("tool_calls"), *policy.main.finite("tool_calls")]
        pools = [line for line in lines if line in scope.own or line.data["scope"] != "run"]
        least = most_executions(policy) if scope.agent is None else min(pools, key=_total, default=None)
        for rule in scope.tools if least is not None else ():
            if least is not None and rule.data["limit"] is not None and rule.data["limit"] > _total(least):
                _above(rule, least, report)


def _total(line: LimitLine) -> int:
    return line.total or 0


def _above(rule: ToolLine, least: LimitLine, report: Report) -> None:
    clause = next(c for c in rule.node.clauses if isinstance(c, tree.ToolLimit))
    report.warn(
        "P359",
        f"no tool runs {rule.data['limit']} times: all together have {least.total} calls",
        clause.span,
        "never reached",
        Label(least.value.span, "the limit of all tools"),
        help=f"write a smaller limit, or a larger `{least.title}`",
    )
