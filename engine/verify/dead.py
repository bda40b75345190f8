"""Lines of a policy that never do what they say, at the limits as they are, and from which limit on they would.

A line is judged by the rules of the machine that come from it, and by a search that has visited every state. Which
limit keeps it from acting is found by raising one limit at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.core.machine.build import build
from engine.core.machine.failure_plan import breaker_origin, breakers_of, failure_plans
from engine.core.machine.machine import Machine, Rule
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Ask, Consult, Extend, Finalize, Limit, Policy, Stop
from engine.verify.explore import explore
from engine.verify.saturated import saturate
from engine.verify.verdicts import Budget, Dead
from engine.verify.world import World, around

_ALONE = World(ancestors=False, clients=True)

_RAISED = (1, 2, 4, 8, 16)
"""By how much a limit is raised, to see whether a line would act then."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a line of the policy does, and how to tell a rule of the machine that does it. ``own``: its limit's id."""

    what: str
    origin: str
    kind: str
    plan: int = -1
    ladder: int = 0
    step: int = 0
    own: str = ""

    def does(self, rule: Rule) -> bool:
        """Is this rule what the line says?"""
        effect = rule.effect
        if self.ladder:
            return (effect.ladder, effect.step) == (self.ladder, self.step)
        if self.plan < 0:
            return rule.origin == self.origin and effect.kind == self.kind
        return effect.limit == self.plan and (effect.kind == self.kind or effect.word == self.kind)


def dead_lines(
    policy: Policy, machine: Machine, fired: Mapping[str, int], budget: Budget, of: frozenset[str] | None = None
) -> tuple[Dead, ...]:
    """Every line, or each of those in ``of``, of which nothing fired; ``budget.seconds`` are for all searches."""
    until = time.perf_counter() + budget.seconds
    found = []
    for line in _lines(policy):
        if (of is None or line.origin in of) and not _acts(line, machine, fired):
            why = _live_from(policy, line, until, budget) or _never(policy, line, machine, until, budget)
            found.append(Dead(line.what, line.origin, why))
    return tuple(found)


def _never(policy: Policy, line: Line, machine: Machine, until: float, budget: Budget) -> str:
    """That the line acts at no limits of this shape (0 stays 0); empty where that is not known."""
    rules = {rule.id for rules in machine.rules.values() for rule in rules if line.does(rule)}
    seconds = max(0.0, until - time.perf_counter())
    found = saturate(
        policy, made=lambda small: around(build(small), small, World()), max_states=budget.states, max_seconds=seconds
    )
    return "whatever the limits above 0 are" if rules <= set(found.never) and not found.cut else ""


def _acts(line: Line, machine: Machine, fired: Mapping[str, int]) -> bool:
    return any(fired.get(rule.id) for rules in machine.rules.values() for rule in rules if line.does(rule))


def _lines(policy: Policy) -> Iterator[Line]:
    """What the policy says itself: steps of ladders, and limits that end a run."""
    for plan in plans_of(policy):
        name = plan.limit.id
        for step in plan.limit.then:
            words = _STEPS.get(type(step))
            if words is not None:
                sent = ", and its instruction is never sent" if isinstance(step, Finalize) and step.text else ""
                what = f"{words[1].format(name)}{sent}"
                yield Line(what, plan.origin, words[0], plan.index, own=name)
        if not any(isinstance(step, Finalize) for step in plan.limit.then):
            yield Line(f"`{name}` never ends a run", plan.origin, "incomplete", plan.index, own=name)
    for failure in failure_plans(policy):
        for place, one in failure.steps():
            if place < len(failure.rule.then) and not isinstance(one, Stop):
                what = f"step {place + 1}, `{one.do}`, is never taken"
                yield Line(what, failure.origin, "", ladder=failure.index, step=place)
    for breaker in breakers_of(policy):
        if breaker.when_open in ("stop", "finalize"):
            ends = breaker.when_open == "stop"
            what = f"breaker `{breaker.glob}` never {'ends a run' if ends else 'leads to a final call'}"
            yield Line(what, breaker_origin(breaker), "end" if ends else "final")


_STEPS: dict[type, tuple[str, str]] = {
    Finalize: ("final", "no final call is ever made for `{}`"),
    Extend: ("extended", "`{}` is never extended"),
    Ask: ("suspend", "nobody is ever asked for more `{}`"),
    Consult: ("resolve", "the host is never consulted about `{}`"),
}


def _live_from(policy: Policy, line: Line, until: float, budget: Budget) -> str:
    """The smallest other limit from which on the line acts; empty if raising one of them is not enough."""
    for limit in policy.limits:
        if limit.max is None or limit.id == line.own or time.perf_counter() > until:
            continue
        if not any(plan.limit.id == limit.id and plan.counted for plan in plans_of(policy)):
            continue
        for more in _RAISED:
            if _acts_with(policy, limit, limit.max + more, line, until, budget):
                least = _least(policy, limit, limit.max + more // 2, limit.max + more, line, until, budget)
                return f"`{limit.id} {limit.max}` comes before it: it acts from `{limit.id} {least}` on"
    return ""


def _least(policy: Policy, limit: Limit, dead: int, live: int, line: Line, until: float, budget: Budget) -> int:
    while live - dead > 1:
        middle = (dead + live) // 2
        if _acts_with(policy, limit, middle, line, until, budget):
            live = middle
        else:
            dead = middle
    return live


def _acts_with(policy: Policy, limit: Limit, most: int, line: Line, until: float, budget: Budget) -> bool:
    """Would the line act with this maximum?"""
    changed = tuple(x.model_copy(update={"max": most}) if x.id == limit.id else x for x in policy.limits)
    other = policy.model_copy(update={"limits": changed})
    machine = around(build(other), other, _ALONE)
    seconds = max(0.0, until - time.perf_counter())
    laws = Laws((), (), plans_of(other))
    found = explore(machine, laws, max_states=budget.states, max_seconds=seconds, max_open=budget.open)
    return _acts(line, machine, found.fired)
