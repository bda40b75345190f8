"""clause for tools that never run

A `limit`, `timeout`, `ask` or `retry` is for tools that may run. Where every tool that the pattern matches is denied,
it has no effect. An `allow` in the file that denies is an exception to a broader `deny`.

Why: the clause looks as if the tools could run within it.

Bad:

    policy "office" lang 1
    tool "file_*"      deny
    tool "file_write"  limit 3

Good:

    policy "office" lang 1
    tool "file_*"      deny
    tool "file_write"  allow
    tool "file_write"  limit 3

Fix: none; either the `deny` or the clause is not meant.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import ToolScope, denial_of

_RUNNING = (tree.ToolLimit, tree.Timeout, tree.AskFirst, tree.ToolRetry)
"""Clauses about tools that may run."""


def check(policy: Subject, report: Report) -> None:
    for scope in policy.tool_scopes:
        _denied_tools(scope, report)


def _denied_tools(scope: ToolScope, report: Report) -> None:
    if not any(scope.denying):
        return
    for line in scope.tools:
        clause = next((clause for clause in line.node.clauses if isinstance(clause, _RUNNING)), None)
        denial = denial_of(line.data["glob"], scope) if clause else None
        if clause is not None and denial is not None:
            _never_runs(clause, denial, report)


def _never_runs(clause: tree.Clause, denial: ToolLine, report: Report) -> None:
    deny = next(c for c in denial.node.clauses if isinstance(c, tree.Deny))
    report.warn(
        "P318",
        f"this `{clause.keyword}` is for tools that never run",
        clause.span,
        "never of use",
        Label(deny.span, "denied here"),
        help=f"remove the `{clause.keyword}`, or `allow` some of the tools in the file that denies them",
    )
