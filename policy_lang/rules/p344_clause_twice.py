"""two clauses for the same tools

Of two statements of one file with the same pattern and the same clause only one ever binds: the smaller limit, the
shorter time, one of two texts.

Why: whoever changes the other changes nothing.

Bad:

    policy "search" lang 1
    tool "search_*"  limit 10
    tool "search_*"  limit 5

Good:

    policy "search" lang 1
    tool "search_*"  limit 5

Fix: none; which of the two is meant is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for scope in policy.tool_scopes:
        known: dict[tuple[int, str, str], tree.Clause] = {}
        for line in scope.tools:
            for clause in line.node.clauses:
                first = known.setdefault((line.data["base"], line.data["glob"], clause.keyword), clause)
                # A clause twice in one statement is an error, and told where statements are judged.
                if first is not clause and first not in line.node.clauses:
                    report.warn(
                        "P344",
                        f"this file has two `{clause.keyword}` for `{line.data['glob']}`",
                        clause.span,
                        "again",
                        Label(first.span, "first here"),
                        help="only one of them binds: keep one",
                    )
