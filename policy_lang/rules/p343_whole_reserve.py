"""reserve as large as the limit

The final call is due as soon as no more than the reserve is left. With all of the limit as reserve that is before the
first call, and no tool could ever be used.

Why: the agent answers at once, from nothing.

Bad:

    policy "chat" lang 1
    limits {
      tokens  4k  reserve 4k  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      tokens  40k  reserve 4k  then finalize
    }

Fix: none; what a final call takes is yours to say.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for line in policy.lines:
        reserve, most = line.reserve, line.value
        if reserve is not None and most.value is not None and line.finalizes and reserve.value == most.value:
            report.warn(
                "P343",
                f"the reserve is the whole limit of `{line.title}`",
                reserve.span,
                "nothing is left for any other call",
                Label(most.span, "the limit"),
                help="the first call would be the final one, without tools: write a smaller reserve",
            )
