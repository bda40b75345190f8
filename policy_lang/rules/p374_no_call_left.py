"""fallback that no call is left for

A fallback is a model call like any other and is counted in `llm_calls`. With one call in all there is none for another
client, and a chain of three needs four.

Why: the step is skipped without a word, and the run ends just as if it were not there.

Bad:

    policy "classify" lang 1
    limits {
      llm_calls  1
    }
    on llm_failure overloaded  fallback large  then stop

Good:

    policy "classify" lang 1
    limits {
      llm_calls  2
    }
    on llm_failure overloaded  fallback large  then stop

Fix: none; a further call and no fallback are both right.
"""

from __future__ import annotations

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    told: set[Span] = set()
    for scope in policy.scopes:
        calls = scope.limit("llm_calls")
        if calls is not None and calls.data["max"]:
            for rule in scope.failures:
                _fallbacks(rule, calls, told, report)


def _fallbacks(rule: FailureLine, calls: LimitLine, told: set[Span], report: Report) -> None:
    """Each client of the ladder takes one call, after the one that has failed."""
    if any(isinstance(step, tree.Consult) for step in rule.steps):
        return  # which may choose a later step at once
    chains = zip(rule.steps, rule.data["then"], strict=True)
    chosen = [(step.clients, data["clients"]) for step, data in chains if isinstance(step, tree.Fallback)]
    if any(len(words) != len(names) for words, names in chosen):
        return  # one of them is wrong, or named twice, which is told already
    named = [(word.span, name) for words, names in chosen for word, name in zip(words, names, strict=True)]
    most = calls.data["max"]
    if len(named) < most or named[most - 1][0] in told:
        return
    span, name = named[most - 1]
    told.add(span)
    report.warn(
        "P374",
        f"no call is left for `{name}`: a run has {most}, the first one included",
        span,
        "never asked",
        Label(calls.value.span, "all calls of a run"),
        help=f"write `llm_calls {len(named) + 1}` or more, or fall back to fewer clients",
    )
