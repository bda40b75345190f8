"""What a policy says about one tool by its name: denied, limited, for how long it may run.

Globs are matched case-sensitively, whatever the platform. Deny beats limit; every matching
limit binds; an ``allow`` lifts only a broader deny written in the same file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from engine.core.ladders import LARGEST, Retry
from engine.core.machine.failure_plan import breakers_of
from engine.core.machine.plan import origin_of
from engine.core.policy import Policy, ToolRule
from engine.core.vocabulary import REFUSALS


class ToolFacts(NamedTuple):
    """``limits`` are (index into the state's ``tool_counts``, maximum, text, origin); ``timeout`` in ms, 0 for none.

    ``breakers`` are indices in the machine's order, ``ask_within`` is in ms, 0 for ever.
    """

    denied: bool
    deny_text: str
    deny_origin: str
    limits: tuple[tuple[int, int, str, str], ...]
    timeout: int
    breakers: tuple[int, ...] = ()
    asks: bool = False
    ask_within: int = 0
    ask_origin: str = ""
    retry: Retry | None = None
    retry_origin: str = ""
    timeout_origin: str = ""

    @property
    def watched(self) -> bool:
        """Does the end of an execution mean more than that it has ended?"""
        return bool(self.breakers) or self.retry is not None


PLAIN = ToolFacts(False, "", "", (), 0)
"""The policy says nothing about this tool."""


class ToolRules:
    """The tool rules of one policy. ``counters``: how many of them count executions; ``limited``: these, with the place
    of each in the state's ``tool_counts``."""

    def __init__(self, policy: Policy) -> None:
        rules = sorted(policy.tools, key=_fixed_order)
        self._rules = tuple((_matcher(rule.glob), rule) for rule in rules if rule.limit is None)
        limited = [rule for rule in rules if rule.limit is not None]
        self._limited = tuple((_matcher(rule.glob), rule, index) for index, rule in enumerate(limited))
        self._breakers = tuple((_matcher(b.glob), i) for i, b in enumerate(breakers_of(policy)))
        self.counters = len(limited)
        self.limited = tuple((rule, index) for index, rule in enumerate(limited))
        self.facts = lru_cache(maxsize=4096)(self._facts)

    def _facts(self, name: str) -> ToolFacts:
        limited = [(rule, index) for matcher, rule, index in self._limited if matcher.fullmatch(name)]
        matching = [rule for matcher, rule in self._rules if matcher.fullmatch(name)]
        matching += [rule for rule, _ in limited]
        breakers = tuple(index for matcher, index in self._breakers if matcher.fullmatch(name))
        if not breakers and all(rule.allow for rule in matching):
            return PLAIN
        allows = [rule for rule in matching if rule.allow]
        denial = next((rule for rule in matching if rule.deny and not _lifted(rule, allows)), None)
        asks = [rule for rule in matching if rule.ask and not _lifted(rule, allows)]
        asked = min(asks, key=lambda rule: rule.ask_within or LARGEST, default=None)
        timed = min((rule for rule in matching if rule.timeout), key=lambda rule: rule.timeout or 0, default=None)
        retried = min((rule for rule in matching if rule.retry), key=_retries, default=None)
        return ToolFacts(
            denied=denial is not None,
            deny_text=(denial.deny_text if denial else None) or REFUSALS["denied"],
            deny_origin=_origin(denial) if denial else "",
            limits=tuple(
                (index, rule.limit or 0, rule.limit_text or REFUSALS["tool_limit"], _origin(rule))
                for rule, index in limited
            ),
            timeout=(timed.timeout or 0) if timed else 0,
            breakers=breakers,
            asks=asked is not None,
            ask_within=(asked.ask_within or 0) if asked else 0,
            ask_origin=_origin(asked) if asked else "",
            retry=retried.retry if retried else None,
            retry_origin=_origin(retried) if retried else "",
            timeout_origin=_origin(timed) if timed else "",
        )


def _retries(rule: ToolRule) -> int:
    """Where several rules retry a tool, the most cautious one binds."""
    return rule.retry.times if rule.retry else 0


def _lifted(denial: ToolRule, allows: list[ToolRule]) -> bool:
    """An ``allow`` is an exception to a broader deny or ask of its own file."""
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
