"""`allow` that lifts nothing

An `allow` is an exception to a `deny` or `ask` of the same file whose pattern is broader, as `"file_*"` is than
`"file_read"`. It never lifts a rule of a base or of an imported file, and it is not needed for tools that no rule
denies: what is not denied may run.

Why: whoever reads it takes all other tools for denied.

Bad:

    policy "office" lang 1
    tool "file_read"  allow
    tool "mail_*"     deny

Good:

    policy "office" lang 1
    tool "file_read"  allow
    tool "file_*"     deny

Fix: none; either a `deny` is missing or the `allow` is not needed.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.glob_index import Patterns
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import ToolScope, indexed


def check(policy: Subject, report: Report) -> None:
    around = indexed(policy.merged.tools, "deny", "ask")
    for scope in policy.tool_scopes:
        _idle_allows(scope, around, report)


def _idle_allows(scope: ToolScope, around: Patterns[ToolLine], report: Report) -> None:
    allowing = [line for line in scope.tools if line.data["allow"]]
    if not allowing:
        return
    own = indexed([*scope.tools, *scope.below], "deny", "ask")
    for line in allowing:
        if not any(_lifts(line, patterns) for patterns in (own, around)):
            _lifts_nothing(line, (own, around), report)


def _lifts(allow: ToolLine, refusing: Patterns[ToolLine]) -> bool:
    """An ``allow`` is an exception to a broader pattern of its own file. Its own pattern counts as one long name, as it
    does for the engine: signs for any text are signs like others."""
    glob, base = allow.data["glob"], allow.data["base"]
    name = glob.translate({ord("*"): "\0", ord("?"): "\0"})
    return any(other.data["base"] == base and other.data["glob"] != glob for other in refusing.covering(name))


def _lifts_nothing(line: ToolLine, refusing: tuple[Patterns[ToolLine], ...], report: Report) -> None:
    allow = next(c for c in line.node.clauses if isinstance(c, tree.Allow))
    near = next((other for patterns in refusing for _, other in patterns.overlapping(line.data["glob"])), None)
    why: tuple[Label, ...] = ()
    if near is not None:
        clause = next(c for c in near.node.clauses if isinstance(c, tree.Deny | tree.AskFirst))
        own = near.data["base"] == line.data["base"]
        why = (Label(clause.span, "its pattern is not broader" if own else "of another file, which stays"),)
    report.warn(
        "P342",
        "this `allow` lifts nothing",
        allow.span,
        "an exception to no rule",
        *why,
        help="it lifts a `deny` or `ask` of the same file with a broader pattern: write one, or remove this `allow`",
    )
