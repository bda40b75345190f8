"""limit of zero

`0` means none. Where no model call, token, money or time is allowed, a run ends before its first call, whatever
ladder the limit has. With no tool round or tool call and `finalize`, the first call is the final one, without tools.

Why: `0` is often meant to say that there is no limit: that is `unlimited`.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  0  then finalize
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  unlimited
      wall       5m
    }

Fix: none; no limit and a larger one are both right.
"""

from __future__ import annotations

from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.shared import final_step
from policy_lang.rules.subject import Subject

_NEEDED = ("llm_calls", "llm_attempts", "tokens", "input_tokens", "output_tokens", "cost", "wall")
"""What every call takes something of."""


def check(policy: Subject, report: Report) -> None:
    reactive = policy.merged.final["mode"] == "reactive"
    for line in policy.lines:
        resource = line.data["resource"]
        if line.data["max"] != 0:
            continue
        if resource in _NEEDED:
            _no_call(line, report)
        elif resource in ("tool_iterations", "tool_calls") and line.finalizes and not reactive:
            _final_at_once(line, report)


def _no_call(line: LimitLine, report: Report) -> None:
    final = ", not even a final one" if line.finalizes else ""
    report.warn(
        "P347",
        f"with no `{line.data['resource']}` at all, no call can be made{final}",
        line.value.span,
        "none",
        help="write `unlimited` for no limit, or a larger one",
    )


def _final_at_once(line: LimitLine, report: Report) -> None:
    report.warn(
        "P347",
        "the first call is the final one, without tools",
        final_step(line).span,
        f"no `{line.data['resource']}` from the start",
        help="write a larger limit, or deny the tools",
    )
