"""reactive mode for nothing

`mode reactive` is about tool limits that finalize: the round that does not fit is answered before the final call.
Where neither `tool_iterations` nor `tool_calls` finalizes, it makes no difference.

Why: its text is never sent.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20  then finalize
    }
    finalization {
      mode  reactive "The tools are used up."
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls        20  then finalize
      tool_iterations  8   then finalize
    }
    finalization {
      mode  reactive "The tools are used up."
    }

Fix: none; either a limit is missing or the line is not needed.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.report import Report
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    if policy.broken or policy.merged.final["mode"] != "reactive":
        return
    if any(line.data["resource"] in ("tool_iterations", "tool_calls") and line.finalizes for line in policy.lines):
        return
    for statement in policy.statements:
        for line in statement.lines if isinstance(statement, tree.Finalization) else ():
            if isinstance(line, tree.Mode | tree.ModeUsing):
                report.warn(
                    "P363",
                    "`mode reactive` is for a tool limit that finalizes, and there is none",
                    line.span,
                    "makes no difference",
                    help="write `tool_iterations N then finalize`, or remove it",
                )
