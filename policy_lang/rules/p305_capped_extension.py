"""extension above the limit

`extend` adds at most the original limit, so a larger number is capped to it.

Why: the run goes on for less than the file says.

Bad:

    policy "research" lang 1
    limits {
      tool_iterations  5  then extend 20 once  then finalize
    }

Good:

    policy "research" lang 1
    limits {
      tool_iterations  5  then extend 5 once  then finalize
    }

Fix: safe or unsafe: it writes the number that is in force. Where one of the two numbers is a name, it is unsafe: the
number may be another for a host that sets a `param`.
"""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import SAYS, UNSAFE, Edit, Label
from policy_lang.quantities import text_of
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine, stated
from policy_lang.rules.shared import steps_of
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for line in policy.lines:
        most = line.data["max"]
        if most is not None and any(s["do"] == "extend" and s["by"] > most for s in line.data["then"]):
            _capped(line, most, report)


def _capped(line: LimitLine, most: int, report: Report) -> None:
    step = steps_of(line, tree.Extend)[0]
    by = step.by.span  # type: ignore[union-attr]
    shown = text_of(most, RESOURCES[line.data["resource"]].unit)
    report.warn(
        "P305",
        f"an extension is at most the limit itself: {shown}",
        by,
        "capped",
        Label(line.value.span, "the limit"),
        help=f"write `extend {shown} once`",
        fix=(Edit(by, shown),),
        safety=SAYS if stated(line) else UNSAFE,
    )
