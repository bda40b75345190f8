"""How much the laws and claims of a policy notice: its machine with a fault, one at a time, and who says so.

This measures what is specified, not the policy: a fault that nobody notices is a behaviour that nobody has promised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from engine.core.claims import Claim
from engine.core.machine.build import build
from engine.core.machine.claim_amounts import Classes
from engine.core.machine.claim_laws import promises_of
from engine.core.machine.expr import TRUE
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine, Rule, Sort
from engine.core.machine.monitors import Laws
from engine.core.policy import Policy
from engine.verify.explore import Exploration, explore
from engine.verify.spending import spending
from engine.verify.verdicts import Budget
from engine.verify.world import World, around

Fate = Literal["noticed", "same", "survived", "unknown"]

_EACH = 50_000
"""States visited with one fault at most."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of the machine: of which rule, what, and where the rule comes from."""

    rule: str
    what: str
    origin: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class Judged:
    """``by`` is the law or claim that is broken with the fault. ``same``: nothing that is visited differs."""

    fault: Fault
    fate: Fate
    by: str = ""


@dataclass(frozen=True, slots=True)
class Weakened:
    """All faults that were tried, of ``there`` in all. ``unfit`` are laws and claims that do not hold without any."""

    judged: tuple[Judged, ...]
    there: int
    unfit: tuple[str, ...]
    why: str = ""

    @property
    def noticed(self) -> int:
        return sum(one.fate == "noticed" for one in self.judged)

    @property
    def counted(self) -> int:
        return sum(one.fate in ("noticed", "survived") for one in self.judged)


Progress = Callable[[int, int], None]


def faults(machine: Machine) -> Iterator[Fault]:
    """A rule dropped, always taken, behind the next one; an update left out. The last rule of an event stays."""
    meters = {v.name for v in machine.variables if v.sort is Sort.METER}
    for event, rules in machine.rules.items():
        for place, rule in enumerate(rules):
            last = place == len(rules) - 1

            def made(what: str, *changed: Rule, at: int, over: int = 1) -> Fault:
                new = (*rules[:at], *changed, *rules[at + over :])  # noqa: B023 - called at once
                whole = replace(machine, rules={**machine.rules, event: new})  # noqa: B023
                return Fault(rules[at].id, what, rules[at].origin, whole)  # noqa: B023

            if not last:
                yield made("dropped", at=place)
            if rule.guard != TRUE:
                yield made("always taken", replace(rule, guard=TRUE), at=place)
            if place < len(rules) - 2:
                yield made(f"behind {rules[place + 1].id}", rules[place + 1], rule, at=place, over=2)
            for update in rule.updates:
                if update.var not in meters:
                    kept = tuple(u for u in rule.updates if u is not update)
                    yield made(f"leaves {update.var} as it is", replace(rule, updates=kept), at=place)


def weakened(
    policy: Policy, claims: Sequence[Claim], budget: Budget, progress: Progress = lambda n, of: None
) -> Weakened:
    """Try every fault of a policy's machine, as far as the time lets one."""
    until = time.perf_counter() + budget.seconds
    machine = build(policy)
    watching = [Watching("", laws_of(policy), World()), *_claims(policy, claims)]
    plain = [_explored(machine, policy, each, budget, until) for each in watching]
    if plain[0].cut:
        return Weakened((), 0, (), f"its states were not all visited: {plain[0].cut}")
    unfit = [name or found.broken[0].law for (name, *_), found in zip(watching, plain, strict=True) if found.broken]
    fit = [(w, f) for w, f in zip(watching, plain, strict=True) if not f.broken and not f.cut]
    found = sorted(faults(machine), key=lambda fault: fault.origin.startswith("default: "))  # its own lines first
    judged: list[Judged] = []
    for number, fault in enumerate(found):
        if time.perf_counter() > until:
            break
        progress(number, len(found))
        judged.append(_judge(fault, policy, fit, budget, until))
    return Weakened(tuple(judged), len(found), tuple(unfit))


class Watching(NamedTuple):
    """What looks on: the name of a claim, or none for the laws, and the amounts that it compares."""

    name: str
    laws: Laws
    world: World
    amounts: tuple[Classes, ...] = ()


def _claims(policy: Policy, claims: Sequence[Claim]) -> Iterator[Watching]:
    for promise in promises_of(policy, claims):
        yield Watching(promise.claim.name, promise.explored, World(clients=True), promise.amounts)


def _explored(machine: Machine, policy: Policy, looks: Watching, budget: Budget, until: float) -> Exploration:
    seconds = max(0.0, until - time.perf_counter())
    most = min(_EACH, budget.states)
    machine = around(spending(machine, looks.amounts, policy), policy, looks.world)
    return explore(machine, looks.laws, max_states=most, max_seconds=seconds, max_open=budget.open)


def _judge(
    fault: Fault, policy: Policy, fit: Sequence[tuple[Watching, Exploration]], budget: Budget, until: float
) -> Judged:
    same, cut = True, False
    for looks, plain in fit:
        found = _explored(fault.machine, policy, looks, budget, until)
        if found.broken:
            return Judged(fault, "noticed", looks.name or found.broken[0].law)
        cut = cut or bool(found.cut)
        same = same and (found.states, found.fired) == (plain.states, _less(plain.fired, found.fired))
    return Judged(fault, "unknown" if cut else "same" if same else "survived")


def _less(plain: dict[str, int], found: dict[str, int]) -> dict[str, int]:
    """Without rules that never fired and are not there any more."""
    return {id: many for id, many in plain.items() if many or id in found}


__all__ = ["Fault", "Judged", "Weakened", "faults", "weakened"]
