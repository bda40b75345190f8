"""only one call, and that one final

`llm_calls 1 then finalize` makes the only call the final one, which has no tools: the agent can never use any.

Why: tools are declared to no effect. Where none is wanted, a `deny` says so.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  1  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  2  then finalize
    }

Fix: none; either more calls are meant or no tools.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.shared import final_step
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for line in policy.lines:
        if line.title == "llm_calls" and line.data["max"] == 1 and line.finalizes:
            report.warn(
                "P328",
                "with one model call that is final, the agent can never use a tool",
                line.value.span,
                "the only call",
                Label(final_step(line).span, "made without tools"),
                help="allow at least 2 calls, or deny the tools",
            )
