"""A policy with its numbers made small: the same shape, for the search that stands for all of them.

Every counted limit of 1 or more becomes ``MANY``, and what its ladder adds more than that, so that a cap which is
not kept shows. A limit of 0 stays: its rules are others. Amounts of tokens, money and time, and the thresholds of
breakers, are no numbers of the machine, and stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.ladders import Ask, Extend, Retry, Step
from engine.core.policy import Policy
from engine.core.statements import FailureRule, Limit
from engine.core.vocabulary import RESOURCES

MANY = 2
"""Stands for every number from here on."""


def with_small_numbers(policy: Policy) -> Policy:
    """The policy that stands for all policies of its shape."""
    finalization = policy.finalization
    return policy.model_copy(
        update={
            "limits": tuple(_limit(limit) for limit in policy.limits),
            "failures": tuple(_failure(rule) for rule in policy.failures),
            "finalization": finalization.model_copy(update={"empty_retries": min(MANY, finalization.empty_retries)}),
        }
    )


def _limit(limit: Limit) -> Limit:
    if not limit.max or RESOURCES[limit.resource].kind != "counted":
        return limit
    return limit.model_copy(update={"max": MANY, "then": tuple(_step(step) for step in limit.then)})


def _step(step: Step) -> Step:
    if isinstance(step, Extend):
        return step.model_copy(update={"by": MANY + 1})
    if isinstance(step, Ask):
        return step.model_copy(update={"up_to": MANY if step.up_to else step.up_to, "times": min(MANY, step.times)})
    return step


def _failure(rule: FailureRule) -> FailureRule:
    then = tuple(
        step.model_copy(update={"times": min(MANY, step.times)}) if isinstance(step, Retry) else step
        for step in rule.then
    )
    return rule.model_copy(update={"then": then})


def nearby(policy: Policy) -> Iterator[Policy]:
    """Policies of the same shape with small limits, the smallest first: one that breaks a law has a short run."""
    places = [i for i, limit in enumerate(policy.limits) if limit.max and RESOURCES[limit.resource].kind == "counted"]
    seen: set[tuple[int, ...]] = set()
    for usual, other in ((1, 1), (2, 2), (2, 1), (1, 2), (2, 3), (3, 3)):
        for alone in places or (-1,):
            numbers = tuple(other if i == alone else usual for i in places)
            if numbers not in seen:
                seen.add(numbers)
                yield _numbered(policy, dict(zip(places, numbers, strict=True)))


def _numbered(policy: Policy, numbers: dict[int, int]) -> Policy:
    limits = (
        limit.model_copy(update={"max": numbers[i]}) if i in numbers else limit for i, limit in enumerate(policy.limits)
    )
    return policy.model_copy(update={"limits": tuple(limits)})
