"""What a policy says about one tool by its name: denied, limited, for how long it may run.

Globs are matched case-sensitively, whatever the platform. Deny beats limit; every matching
limit binds; an ``allow`` lifts only a broader deny written in the same file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from engine.core.machine.plan import origin_of
from engine.core.policy import Policy, ToolRule
from engine.core.vocabulary import REFUSALS


class ToolFacts(NamedTuple):
    """``limits`` are (index into the state's ``tool_counts``, maximum, text, origin); ``timeout`` in ms, 0 for none."""

    denied: bool
    deny_text: str
    deny_origin: str
    limits: tuple[tuple[int, int, str, str], ...]
    timeout: int


PLAIN = ToolFacts(False, "", "", (), 0)
"""The policy says nothing about this tool."""


class ToolRules:
    """The tool rules of one policy. ``counters``: how many of them count executions."""

    def __init__(self, policy: Policy) -> None:
        rules = sorted(policy.tools, key=_fixed_order)
        self._rules = tuple((_matcher(rule.glob), rule) for rule in rules if rule.limit is None)
        limited = [rule for rule in rules if rule.limit is not None]
        self._limited = tuple((_matcher(rule.glob), rule, index) for index, rule in enumerate(limited))
        self.counters = len(limited)
        self.facts = lru_cache(maxsize=4096)(self._facts)

    def _facts(self, name: str) -> ToolFacts:
        limited = [(rule, index) for matcher, rule, index in self._limited if matcher.fullmatch(name)]
        matching = [rule for matcher, rule in self._rules if matcher.fullmatch(name)]
        matching += [rule for rule, _ in limited]
        allows = [rule for rule in matching if rule.allow]
        denial = next((rule for rule in matching if rule.deny and not _lifted(rule, allows)), None)
        if not matching or all(rule.allow for rule in matching):
            return PLAIN
        return ToolFacts(
            denied=denial is not None,
            deny_text=(denial.deny_text if denial else None) or REFUSALS["denied"],
            deny_origin=_origin(denial) if denial else "",
            limits=tuple(
                (index, rule.limit or 0, rule.limit_text or REFUSALS["tool_limit"], _origin(rule))
                for rule, index in limited
            ),
            timeout=min((rule.timeout for rule in matching if rule.timeout), default=0),
        )


def _lifted(denial: ToolRule, allows: list[ToolRule]) -> bool:
    """An ``allow`` is an exception to a broader deny of its own file."""
    broader = _matcher(denial.glob)
    return any(a.base == denial.base and a.glob != denial.glob and broader.fullmatch(a.glob) for a in allows)


def _origin(rule: ToolRule) -> str:
    return origin_of(rule.origin, f'tool "{rule.glob}"')


def _fixed_order(rule: ToolRule) -> tuple[object, ...]:
    """Counters must not depend on the order in which rules were written."""
    return (
        rule.glob,
        rule.base,
        rule.deny,
        rule.deny_text or "",
        rule.limit or 0,
        rule.limit_text or "",
        rule.timeout or 0,
    )


def _matcher(glob: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in glob), re.DOTALL)
