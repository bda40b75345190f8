"""more agents at a time than ever

`children` limits how many agents one agent may ever spawn, `live_children` how many of them may be open at the same
time. The second can never be reached if it is the larger one.

Why: the line looks as if it bounded something.

Bad:

    policy "team" lang 1
    agents {
      children       4
      live_children  10
    }

Good:

    policy "team" lang 1
    agents {
      children       4
      live_children  2
    }

Fix: none; which of the two numbers is meant is yours to say.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    limits = {line.title: line for line in policy.agents.limits if line.data["max"] is not None}
    ever, live = limits.get("children"), limits.get("live_children")
    if ever and live and live.data["max"] > ever.data["max"] > 0:
        report.warn(
            "P369",
            f"with `children {ever.data['max']}` there are never so many at the same time",
            live.value.span,
            "never reached",
            Label(ever.value.span, "as many as are ever spawned"),
            help="write a smaller `live_children`, or a larger `children`",
        )
