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

from typing import Any

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.globs import covers, overlap
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import MOST_PAIRS, ToolScope, tool_scopes


def check(policy: Subject, report: Report) -> None:
    for scope in tool_scopes(policy):
        _idle_allows(scope, report)


def _idle_allows(scope: ToolScope, report: Report) -> None:
    refusing = [line for line in (*scope.binding, *scope.below) if line.data["deny"] or line.data["ask"]]
    allowing = [line for line in scope.tools if line.data["allow"]]
    if len(refusing) * len(allowing) > MOST_PAIRS:
        return
    for line in allowing:
        if not any(_lifts(line.data, other.data) for other in refusing):
            _lifts_nothing(line, refusing, report)


def _lifts(allow: dict[str, Any], other: dict[str, Any]) -> bool:
    """An ``allow`` is an exception to a broader pattern of its own file. Its own pattern counts as one long name, as it
    does for the engine: signs for any text are signs like others."""
    if allow["base"] != other["base"] or allow["glob"] == other["glob"]:
        return False
    return covers(other["glob"], allow["glob"].translate({ord("*"): "\0", ord("?"): "\0"}))


def _lifts_nothing(line: ToolLine, refusing: list[ToolLine], report: Report) -> None:
    allow = next(c for c in line.node.clauses if isinstance(c, tree.Allow))
    near = next((other for other in refusing if overlap(other.data["glob"], line.data["glob"])), None)
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
