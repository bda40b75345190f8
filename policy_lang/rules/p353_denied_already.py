"""denied already

A broader `deny` of the same file covers these tools, nothing excepts them, and the narrower one has no text of its
own to answer with.

Why: whoever removes the narrower line believes the tools to be allowed then.

Bad:

    policy "office" lang 1
    tool "shell_*"    deny "There is no shell here."
    tool "shell_run"  deny

Good:

    policy "office" lang 1
    tool "shell_*"  deny "There is no shell here."

Fix: none; which of the two lines is meant is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import MOST_PAIRS, denies, tool_scopes


def check(policy: Subject, report: Report) -> None:
    for scope in tool_scopes(policy):
        denials = [line for line in scope.tools if line.data["deny"]]
        if len(denials) ** 2 > MOST_PAIRS:
            continue
        exceptions = scope.exceptions
        for line in denials:
            others = [d for d in denials if d.data["glob"] != line.data["glob"] and d.data["base"] == line.data["base"]]
            lifted = exceptions.get(line.data["base"], [])
            first = next((d for d in others if denies(d.data, line.data["glob"], lifted)), None)
            if first is not None and line.data["deny_text"] is None:
                _again(line, first, report)


def _again(line: ToolLine, first: ToolLine, report: Report) -> None:
    deny, broader = (next(c for c in x.node.clauses if isinstance(c, tree.Deny)) for x in (line, first))
    report.warn(
        "P353",
        f"`{first.data['glob']}` denies these tools already",
        deny.span,
        "says nothing new",
        Label(broader.span, "denied here"),
        help="remove it, or give it a text of its own",
    )
