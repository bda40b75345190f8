"""test that another says already

Two tests with the same `given`, the same events and the same expectations pass and fail together. Mostly one of them
was copied to be changed, and was not.

Why: the case it is called after is not tested.

Bad:

    policy "chat" lang 1
    limits {
      llm_calls  20  then finalize
    }
    test "the last call is final" {
      given   llm_calls 19
      when    call
      expect  final because llm_calls
    }
    test "the call before is not" {
      given   llm_calls 19
      when    call
      expect  final because llm_calls
    }

Good:

    policy "chat" lang 1
    limits {
      llm_calls  20  then finalize
    }
    test "the last call is final" {
      given   llm_calls 19
      when    call
      expect  final because llm_calls
    }
    test "the call before is not" {
      given   llm_calls 18
      when    call
      expect  call
    }

Fix: none; only you know what it was to show.
"""

from __future__ import annotations

from typing import Any

from policy_lang.cases import Case
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    first: dict[Any, Case] = {}
    for case in sorted(policy.resolved.cases, key=lambda case: not case.imported):  # what is imported stays
        known = first.setdefault((case.agent, _said(case.given), _said(case.lines)), case)
        if known is not case and not case.imported:
            report.warn(
                "P378",
                "this test says the same as another",
                case.span,
                "passes and fails with it",
                Label(known.span, "the other one"),
                help="change what sets it apart, or remove it",
            )


def _said(parts: Any) -> Any:
    """What lines say, wherever they stand."""
    if isinstance(parts, Span):
        return None
    return (type(parts).__name__, *map(_said, parts)) if isinstance(parts, tuple) else parts
