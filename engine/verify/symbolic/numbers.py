"""The numbers of a policy made symbols: a policy of the same shape whose numbers are marks, and what each mark means.

The machine is built from the marked policy by the same code as ever. A mark is a number that no policy has, so that
where it comes out again (in a variable's start, a grant, a guard) it is the number of the policy, or one next to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.core.ladders import Ask, Extend, Retry, Step
from engine.core.policy import Policy
from engine.core.statements import FailureRule, Limit
from engine.core.vocabulary import RESOURCES
from engine.verify.symbolic.terms import Term, Truth, every, le, plus, symbol

_FIRST, _APART = 10**15, 10**9
"""The first mark, and how far marks are from each other."""

_NEAR = 1_000
"""A number so near a mark is that many more or less than what it means."""


class Marks(dict[int, Term]):
    """Looked up like the mapping from numbers to their meaning; near a mark it is the mark's symbol and the rest."""

    def get(self, value: int, default: Term) -> Term:  # type: ignore[override]
        if value < _FIRST - _NEAR:
            return default
        place, more = divmod(value - _FIRST + _NEAR, _APART)
        mark = _FIRST + place * _APART
        return plus(self[mark], more - _NEAR) if mark in self and more <= 2 * _NEAR else default


@dataclass
class Marked:
    """``policy`` has marks for numbers. ``holds`` is what the symbols are: a limit is 1 or more, and so on."""

    policy: Policy
    meaning: Marks
    symbols: dict[str, str]
    """What each symbol is, in words."""
    holds: Truth


@dataclass
class _Marking:
    meaning: Marks = field(default_factory=Marks)
    symbols: dict[str, str] = field(default_factory=dict)
    holds: list[Truth] = field(default_factory=list)

    def mark(self, name: str, says: str, least: int) -> int:
        mark = _FIRST + len(self.meaning) * _APART
        self.meaning[mark] = symbol(name)
        self.symbols[name] = says
        self.holds.append(le(least, symbol(name)))
        return mark


def marked(policy: Policy, *, capped: bool = False) -> Marked:
    """The policy with a mark for each number of the machine. What a ladder adds is less than the limit, or, if
    ``capped``, more than that."""
    marking = _Marking()
    limits: list[Limit] = []
    for place, limit in enumerate(policy.limits):
        limits.append(_limit(marking, place, limit, capped) if limit.max else limit)
    failures = tuple(_failure(marking, place, rule) for place, rule in enumerate(policy.failures))
    finalization = policy.finalization
    if finalization.empty_retries:
        again = marking.mark("empty_retries", "how often an empty answer is asked for again", 1)
        finalization = finalization.model_copy(update={"empty_retries": again})
    changed = {"limits": tuple(limits), "failures": failures, "finalization": finalization}
    return Marked(policy.model_copy(update=changed), marking.meaning, marking.symbols, every(marking.holds))


def _limit(marking: _Marking, place: int, limit: Limit, capped: bool) -> Limit:
    name = f"limit {place + 1} {limit.id}"
    counted = RESOURCES[limit.resource].kind == "counted"
    maximum = 0
    if counted and capped:
        maximum = marking.mark(name, f"the limit of {limit.id}", 1)
    then = tuple(_step(marking, step, f"{name} step {i + 1}", counted, limit) for i, step in enumerate(limit.then))
    if not counted:
        return limit.model_copy(update={"then": then})
    if not maximum:
        maximum = marking.mark(name, f"the limit of {limit.id}", 1)
    for i, step in enumerate(limit.then):
        if isinstance(step, Extend):
            by = symbol(f"{name} step {i + 1}")
            marking.holds.append(le(symbol(name), by) if capped else le(by, symbol(name)))
    return limit.model_copy(update={"max": maximum, "then": then})


def _step(marking: _Marking, step: Step, name: str, counted: bool, limit: Limit) -> Step:
    if isinstance(step, Extend) and counted:
        return step.model_copy(update={"by": marking.mark(name, f"what the ladder of {limit.id} adds", 1)})
    if isinstance(step, Ask):
        changed: dict[str, int] = {}
        if step.up_to:
            changed["up_to"] = marking.mark(name, f"what may be granted of {limit.id}", 1)
        if step.times > 1:
            changed["times"] = marking.mark(f"{name} times", f"how often {limit.id} is asked about", 2)
        return step.model_copy(update=changed)
    return step


def _failure(marking: _Marking, place: int, rule: FailureRule) -> FailureRule:
    then = tuple(
        step.model_copy(
            update={"times": marking.mark(f"failure {place + 1} step {i + 1} times", "how often a failure retries", 1)}
        )
        if isinstance(step, Retry)
        else step
        for i, step in enumerate(rule.then)
    )
    return rule.model_copy(update={"then": then})
