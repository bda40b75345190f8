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
from policy_lang.rules.tools import ToolScope, denies


def check(policy: Subject, report: Report) -> None:
    for scope in policy.tool_scopes:
        own = scope.denying[0]
        for line in scope.tools:
            if line.data["deny"] and line.data["deny_text"] is None:
                first = next((d for d in own.covering(line.data["glob"]) if _broader(d, line, scope)), None)
                if first is not None:
                    _again(line, first, report)


def _broader(other: ToolLine, line: ToolLine, scope: ToolScope) -> bool:
    """Of what is about all of a rule's tools: does it deny them without exception, by another pattern of this file?"""
    same_file = other.data["base"] == line.data["base"]
    return same_file and other.data["glob"] != line.data["glob"] and denies(other, line.data["glob"], scope)


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
