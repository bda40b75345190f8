"""reserve for nothing

`reserve` keeps something back for the final call that the limit's own ladder makes. Without a `finalize` in it
nothing is kept back, and all of the limit can be spent.

Why: who relies on the reserve finds nothing left.

Bad:

    policy "chat" lang 1
    limits {
      tokens  100k  reserve 4k  then stop
    }

Good:

    policy "chat" lang 1
    limits {
      tokens  100k  reserve 4k  then finalize
    }

Fix: none; a `finalize` and no reserve are both right.
"""

from __future__ import annotations

from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for line in policy.lines:
        if line.reserve is not None and line.value.value is not None and not line.finalizes:
            report.warn(
                "P341",
                f"this reserve of `{line.title}` keeps nothing back",
                line.reserve.span,
                "for a final call that is never made",
                help="write `then finalize` behind it, or remove the reserve",
            )
