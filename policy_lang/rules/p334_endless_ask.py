"""waiting without an end

`ask` without `within` waits for as long as nobody answers. Where a `wall` limits the run, that ends the wait. A
limit's `ask` has no `within`: the run is suspended, and can be answered or cancelled at any time.

Why: a question that nobody sees keeps the run open for ever.

Bad:

    policy "office" lang 1
    tool "refund_*"  ask

Good:

    policy "office" lang 1
    tool "refund_*"  ask within 10m

Fix: none; how long a person has is yours to say.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for scope in () if policy.broken else policy.tool_scopes:
        if any(line.data["resource"] == "wall" and line.data["max"] is not None for line in scope.limits):
            continue
        for line in scope.tools:
            ask = next((c for c in line.node.clauses if isinstance(c, tree.AskFirst) and c.within is None), None)
            if ask:
                report.warn(
                    "P334",
                    "the run may wait for ever for an answer",
                    ask.span,
                    "no end of waiting, and no limit of `wall`",
                    help="write how long a person has, as in `ask within 10m`; no answer in time is a refusal",
                )
