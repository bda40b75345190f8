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
from policy_lang.rules.tools import Exceptions, denies


def check(policy: Subject, report: Report) -> None:
    for scope in policy.tool_scopes:
        own = scope.denying[0]
        for line in scope.tools:
            if line.data["deny"] and line.data["deny_text"] is None:
                exceptions = Exceptions(line.data["glob"], scope)
                broader = own.covering(line.data["glob"], itself=False)
                first = next((d for d in broader if _broader(d, line, exceptions)), None)
                if first is not None:
                    _again(line, first, report)


def _broader(other: ToolLine, line: ToolLine, exceptions: Exceptions) -> bool:
    """Of what is about all of a rule's tools: does it deny them without exception, in this file?"""
    return bool(other.data["base"] == line.data["base"]) and denies(other, exceptions)


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
