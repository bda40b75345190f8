"""Failure ladders and what else can make a call the final one, as the machine sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.ladders import Finalize, Stop
from engine.core.machine.expr import TRUE, Expr
from engine.core.machine.plan import Plan, origin_of
from engine.core.policy import Breaker, FailureRule, FailureStep, Policy

NEVER_RETRIED_BROADLY = ("auth", "invalid_request", "content_filter")
"""Trying again cures none of these: a ``retry`` written for a broader reason does not mean them."""


_STOP = Stop()


@dataclass(frozen=True, slots=True)
class FailurePlan:
    """One ladder of a failed call. ``index`` counts from 1; 0 in the event's field means that no rule matches."""

    index: int
    rule: FailureRule
    origin: str

    def steps(self) -> Iterator[tuple[int, FailureStep]]:
        """Positions and steps, ``stop`` behind the last."""
        yield from enumerate((*self.rule.then, _STOP))

    def retries(self, position: int) -> str:
        """Fuel: further attempts of the call in hand that this step still grants."""
        return f"failure_{self.index}_retries_{position + 1}_left"

    def fits(self, position: int) -> str:
        """Event field: the wait of this ``retry`` ends in time, and the reason is one it is meant for."""
        return f"failure_{self.index}_retry_{position + 1}"

    def switch(self, position: int) -> str:
        """Event field: this ``fallback`` has a client to go to."""
        return f"failure_{self.index}_fallback_{position + 1}"


@dataclass(frozen=True, slots=True)
class Occasion:
    """What can make a call the final one. ``code`` is the value of ``reason`` and ``pending`` that names it.

    A limit has its own ladder (``plan``); a failure and a breaker have one ``step``.
    """

    code: int
    resource: str
    origin: str
    plan: Plan | None = None
    step: Finalize | None = None
    failure: FailurePlan | None = None
    breaker: int = -1
    place: int = 0
    """Where in a failure's ladder: there may be several finalizations in one."""

    @property
    def name(self) -> str:
        """What tells its rules from those of other occasions."""
        if self.plan is not None:
            return self.plan.name
        return f"failure_{self.failure.index}_{self.place + 1}" if self.failure else f"breaker_{self.breaker + 1}"

    @property
    def index(self) -> int:
        """The limit behind it, -1 if there is none."""
        return -1 if self.plan is None else self.plan.index

    def finalizations(self) -> tuple[tuple[int, Finalize], ...]:
        """Places in the ladder that are finalizations."""
        if self.plan is None:
            return ((0, self.step),) if self.step else ()
        return tuple((i, s) for i, s in self.plan.ladder() if isinstance(s, Finalize))

    def at(self, position: int) -> Expr:
        """The ladder stands at this place; a failure and a breaker have but one."""
        return TRUE if self.plan is None else self.plan.at(position)


def failure_plans(policy: Policy) -> tuple[FailurePlan, ...]:
    """The failure ladders, in an order that does not depend on the order they were written in."""
    rules = sorted(policy.failures, key=lambda rule: sorted(rule.reasons))
    return tuple(
        FailurePlan(index, rule, origin_of(rule.origin, f"on llm_failure {', '.join(sorted(rule.reasons))}"))
        for index, rule in enumerate(rules, 1)
    )


def breakers_of(policy: Policy) -> tuple[Breaker, ...]:
    """The breakers, in a fixed order."""
    return tuple(sorted(policy.breakers, key=lambda b: b.model_dump_json(exclude={"origin"})))


def breaker_origin(breaker: Breaker) -> str:
    return origin_of(breaker.origin, f'breaker "{breaker.glob}"')


def occasions_of(
    plans: tuple[Plan, ...], failures: tuple[FailurePlan, ...], breakers: tuple[Breaker, ...]
) -> tuple[Occasion, ...]:
    """Everything that can make a call the final one, each under its code."""
    found: list[Occasion] = [Occasion(plan.index + 1, plan.resource, plan.origin, plan) for plan in plans]
    for failure in failures:
        for place, step in failure.steps():
            if isinstance(step, Finalize):
                code = len(found) + 1
                found.append(Occasion(code, "llm_failure", failure.origin, None, step, failure, place=place))
    for index, breaker in enumerate(breakers):
        if breaker.when_open == "finalize":
            step = Finalize(text=breaker.text, using=breaker.using)
            code = len(found) + 1
            found.append(Occasion(code, "breaker", breaker_origin(breaker), None, step, None, index))
    return tuple(found)
