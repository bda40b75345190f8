"""exception that excepts nothing

Of all rules whose pattern matches a tool, the tightest binds: the smallest `limit`, the shortest `timeout`, the
fewest `retry`. A narrower pattern with more than a broader one allows is no exception to it.

Why: in most other languages the more specific line wins, and here it is without effect.

Bad:

    policy "search" lang 1
    tool "*"         timeout 30s
    tool "search_*"  timeout 2m

Good:

    policy "search" lang 1
    tool "*"         timeout 2m
    tool "search_*"  timeout 30s

Fix: none; give the broader rule the larger number, or the others patterns of their own.
"""

from __future__ import annotations

from typing import Any

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.glob_index import Patterns
from policy_lang.report import Report
from policy_lang.resolve.tools import ToolLine
from policy_lang.rules.subject import Subject
from policy_lang.rules.tools import indexed

_CLAUSES: tuple[tuple[type[tree.Clause], str], ...] = (
    (tree.ToolLimit, "limit"),
    (tree.Timeout, "timeout"),
    (tree.ToolRetry, "retry"),
)


def check(policy: Subject, report: Report) -> None:
    for kind, field in _CLAUSES:
        around = indexed(policy.merged.tools, field)
        for scope in policy.tool_scopes:
            own = [line for line in scope.tools if line.data[field] is not None]
            if own:
                having = [indexed(own, field), around] if scope.around else [around]
                for line in own:
                    _excepted(line, having, kind, field, report)


def _excepted(
    line: ToolLine, others: list[Patterns[ToolLine]], kind: type[tree.Clause], field: str, report: Report
) -> None:
    glob, own = line.data["glob"], _amount(line.data[field])
    broader = (o for patterns in others for o in patterns.covering(glob, itself=False))
    first = next((o for o in broader if _amount(o.data[field]) < own), None)
    if first is None:
        return
    clause, binding = (next(c for c in x.node.clauses if isinstance(c, kind)) for x in (line, first))
    report.warn(
        "P360",
        f"this `{field}` is looser than that of the broader `{first.data['glob']}`, which binds too",
        clause.span,
        "never in force",
        Label(binding.span, "the tighter one"),
        help=f"of all that match, the tightest binds: write a larger `{field}` there, or a smaller one here",
    )


def _amount(value: Any) -> int:
    return int(value["times"]) if isinstance(value, dict) else int(value)
