"""limit that another always reaches first

Each model call takes at least one attempt, tokens are those of input and output together, and what a run uses is used
of its thread and its subtree as well. A limit that is larger than the one it is part of can never be used up.

Why: its ladder, with its instruction for the last answer, is never taken.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls     20  then finalize
      llm_attempts  10
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls     20  then finalize
      llm_attempts  60
    }

Fix: none; which of the two numbers is meant is yours to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject

_PARTS = {"llm_calls": "llm_attempts", "input_tokens": "tokens", "output_tokens": "tokens"}
"""Each of the first takes at least as much of the second."""

_WIDER = {"run": ("thread", "node", "subtree"), "node": ("subtree",)}
"""What one scope uses is used of these as well."""


def check(policy: Subject, report: Report) -> None:
    lines = [line for line in policy.main.own if line.total is not None]
    for line in lines:
        first = next(_sooner(line, lines), None)
        if first is not None:
            report.warn(
                "P358",
                f"the limit of `{line.title}` is never reached",
                line.value.span,
                f"`{first.title}` is used up before",
                Label(first.value.span, "the smaller limit"),
                help=f"write a smaller `{line.title}`, or a larger `{first.title}`",
            )


def _sooner(line: LimitLine, lines: list[LimitLine]) -> Iterator[LimitLine]:
    """Limits that are used up before this one is."""
    resource, scope, most = line.data["resource"], line.data["scope"], line.data["max"]
    for other in lines:
        total = other.total or 0
        same_scope = other.data["scope"] == scope
        part = other.data["resource"] == _PARTS.get(resource) and same_scope
        wider = other.data["resource"] == resource and other.data["scope"] in _WIDER.get(scope or "", ())
        if (part or wider) and total < most:
            yield other
