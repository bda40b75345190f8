"""line that repeats the base

A file that extends another has all of its limits. A line that says the same once more pins it: when the base is
tightened or loosened, this file does not follow.

Why: nobody sees that the line is only a copy, and the next change of the base is lost here.

Bad:

    policy "chat" lang 1
    extends "base.policy"
    limits {
      llm_calls  20
    }
    # --- base.policy
    policy "base" lang 1
    limits {
      llm_calls  20
    }

Good:

    policy "chat" lang 1
    extends "base.policy"
    limits {
      llm_calls  10
    }
    # --- base.policy
    policy "base" lang 1
    limits {
      llm_calls  20
    }

Fix: unsafe: it removes the line. The policy means the same today; whoever pinned the number on purpose would lose that.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.removals import whole_line
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.shared import says_the_same
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    *bases, own = policy.resolved.layers
    known: dict[tuple[str, str | None], LimitLine] = {}
    for base in bases:
        known.update({line.key: line for line in base.limits})
    for line in own.limits if known else ():
        first = known.get(line.key)
        if first is None or line.override is not None or line.data["locked"] or not says_the_same(line, first):
            continue
        report.note(
            "P366",
            f"the base limits `{line.title}` in the same way",
            line.node.span,
            "a copy that does not follow the base",
            Label(first.node.span, "the base's line"),
            help="remove it, or write a tighter limit",
            fix=whole_line(line.node.span),
        )
