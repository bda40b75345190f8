"""run that nothing bounds

Rounds of tools go on for as long as the model asks for tools. A limit on `llm_calls`, `llm_attempts`,
`tool_iterations` or `wall` ends that in any case, one on tokens or cost if every call reports what it has used. A
limit on `tool_calls` does not: a call that is denied, skipped or unknown is not counted, and the model may ask for it
again for ever.

A file without any limit is taken for one that others import or extend, and not reported.

Why: a single question can cost any amount of time and money.

Bad:

    policy "chat" lang 1
    limits {
      tool_calls  60
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls   20  then finalize
      tool_calls  60
    }

Fix: none; how much a run may take is yours to say.
"""

from __future__ import annotations

from policy_lang.report import Report
from policy_lang.rules.subject import Subject

_BOUNDING = (
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "wall",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
)


def check(policy: Subject, report: Report) -> None:
    limits = [line for line in policy.main.own if line.node.span.source is policy.unit.source]
    if policy.broken or not limits or policy.main.finite(*_BOUNDING):
        return
    report.warn(
        "P327",
        "no limit ends a run whose model goes on asking for tools",
        limits[0].resource_span,
        "bounds no run by itself",
        help="limit the model calls, as in `llm_calls 20 then finalize`",
    )
