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
from policy_lang.rules.tools import MOST_PAIRS, ToolScope, denies, tool_scopes

_RUNNING = (tree.ToolLimit, tree.Timeout, tree.AskFirst, tree.ToolRetry)
"""Clauses about tools that may run."""


def check(policy: Subject, report: Report) -> None:
    for scope in tool_scopes(policy):
        _denied_tools(scope, report)


def _denied_tools(scope: ToolScope, report: Report) -> None:
    denials = [line for line in scope.binding if line.data["deny"]]
    running = [(line, clause) for line in scope.tools for clause in line.node.clauses if isinstance(clause, _RUNNING)]
    first = {id(line): clause for line, clause in reversed(running)}
    if not denials or len(denials) * len(first) > MOST_PAIRS:
        return
    exceptions = scope.exceptions
    for line in scope.tools:
        clause = first.get(id(line))
        if clause is None:
            continue
        glob = line.data["glob"]
        denial = next((d for d in denials if denies(d.data, glob, exceptions.get(d.data["base"], []))), None)
        if denial is not None:
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
