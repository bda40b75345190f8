"""Why what a test expects was not decided: what kept the rules that would have decided it from holding. Briefly.

The reasons are those of ``policy explain``; here is only which rules an expectation is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policy_lang.cases import Expectation
from policy_lang.names import listed
from policy_lang.testing.expecting import Seen
from policy_lang.why import Answer, Explainer, Explanation

MOST: Final = 2
"""Rules that are told of."""

_DECIDED_BY: Final = {
    "final": ("final", "resolve"),
    "stop": ("end", "stop"),
    "skip": ("reply",),
    "ask": ("ask",),
    "ask_limit": ("suspend",),
    "retry": ("retry",),
    "fallback": ("fallback",),
    "refuse": ("refuse_child",),
}
"""What the rules decide that an expectation waits for. What is missing stands last in its list: nothing kept it off."""


def why_not(expected: Expectation, seen: Seen) -> tuple[str, ...]:
    """Sentences about the rules of the policy that would have decided what is expected; none where there are none."""
    kinds = _DECIDED_BY.get(expected.kind)
    if kinds is None:
        return ()
    explainer = Explainer(seen.player.policy)
    for record in reversed(seen.records):
        told = explainer.explain(record.before, record.event)
        found = dict.fromkeys(_sentence(rule) for rule in _passed(told, expected, kinds))
        if found:
            return tuple(found)[:MOST]
    return ()


def _passed(told: Explanation, expected: Expectation, kinds: tuple[str, ...]) -> Iterator[Answer]:
    """Rules that stand in a file and are about what is expected, and about its word if that names a limit."""
    about = f"`{expected.word}" if expected.kind in ("final", "stop", "ask_limit") and expected.word else ""
    for look in told.looks:
        if look.event == "tool" and not any(call.endswith(f"`{expected.word}`") for call in look.calls):
            continue
        for rule in look.rules[:-1]:
            if rule.decides in kinds and not rule.because.startswith("default: ") and about in rule.question:
                yield rule


def _sentence(rule: Answer) -> str:
    return f"{listed(rule.facts, 'and')} [{rule.because}]"
