"""pattern in another notation

In a pattern `*` stands for any text and `?` for any character. All other signs stand for themselves: `[a-z]`, `a|b`,
`{a,b}` and `.*` are signs of other notations, and names of tools have no such characters.

Why: a `deny` with such a pattern denies nothing.

Bad:

    policy "office" lang 1
    tool "file_write|file_delete"  deny

Good:

    policy "office" lang 1
    tool "file_write"   deny
    tool "file_delete"  deny

Fix: none; the tools that are meant get rules of their own.
"""

from __future__ import annotations

import re

from policy_lang.report import Report
from policy_lang.rules.shared import patterns
from policy_lang.rules.subject import Subject

_FOREIGN = re.compile(r"[][(){}|^$+\\,\s]|\*\*|^\.\*|\.\*$(?<=[^\w]\.\*)")


def check(policy: Subject, report: Report) -> None:
    for glob, span in patterns(policy):
        if found := _FOREIGN.search(glob):
            sign = found[0] if found[0].strip() else "blank"
            report.warn(
                "P365",
                f"`{sign}` has no meaning in a pattern of tools",
                span,
                "matches no name of a tool" if sign != "**" else "the same as one `*`",
                help="only `*` and `?` stand for other text: write a rule for each pattern",
            )
