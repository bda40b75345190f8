"""What tests of a policy could look at: the rules that a run can come to, the places just before a limit, at it and
beyond it, and for each rule a few shortest runs to it.

The machine goes in, found by visiting every state that a run with nobody above it can come to. How tests are written
and what they have looked at is others' business; only what no test can say at all is left out (``UNTOLD``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.core.machine.build import build
from engine.core.machine.expr import evaluate, names
from engine.core.machine.interpret import Reaction
from engine.core.machine.machine import EventKind, Machine, Phase, Rule, Sort
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import Policy
from engine.verify.explore import Origin, Progress, Search, State, uncollected, unheard
from engine.verify.successors import Branch
from engine.verify.traces import TraceStep, trace
from engine.verify.verdicts import Budget
from engine.verify.world import World, around

UNTOLD = ("handoff", "hosted", "paused", "unmetered", "unpriced", "unstarted", "tool_ends")
"""Events that no test can say: what a provider does by itself, changes of agent, usage that nobody knows."""

_ALONE = World(ancestors=False, clients=True)
_SIMPLE = (World(ancestors=False, clients=True, pauses=False, whole=True, plain=True), replace(_ALONE, whole=True))
"""Where runs to a rule are looked for, those that are easiest to play first."""

_RUNS = 4
"""Runs kept to each rule: not every one can be played."""


class Point(NamedTuple):
    """A place beside a limit. ``left``: so many more fit (2, 1, 0); of an amount whether there is enough (2), only the
    reserve (1), or nothing (0)."""

    limit: str
    left: int


@dataclass(frozen=True, slots=True)
class Coverable:
    """``rules`` that a run comes to, and ``points`` at which one of its events is decided. ``cut`` says why there may
    be more of both, and is empty where every state was visited."""

    rules: dict[str, Rule]
    points: frozenset[Point]
    cut: str
    states: int


class Points:
    """Tells at which points a reaction of the machine decides."""

    def __init__(self, machine: Machine, plans: tuple[Plan, ...]) -> None:
        self.machine, self.plans = machine, plans
        self.asked = {
            event: [plan for plan in plans if plan.counted and _reads(machine, event, plan.fuel)]
            for event in machine.rules
        }

    def of(self, reaction: Reaction) -> Iterator[Point]:
        """The points of one reaction."""
        for plan in self.asked.get(reaction.event, ()):
            left = reaction.variables[plan.fuel]
            if left <= 2:
                yield Point(plan.limit.id, left)
        for plan in self.plans:
            if not plan.counted and plan.field in reaction.fields:
                yield Point(plan.limit.id, reaction.fields[plan.field])


def _reads(machine: Machine, event: str, fuel: str) -> bool:
    rules = machine.rules[event]
    return any(fuel in names(rule.guard) or any(u.var == fuel for u in rule.updates) for rule in rules)


def coverable(policy: Policy, budget: Budget, progress: Progress = unheard) -> Coverable:
    """All that tests of the policy could look at, as far as the budget lets one see."""
    until = time.perf_counter() + budget.seconds
    machine = _told(around(build(policy), policy, _ALONE))
    plans = plans_of(policy)
    search = Search(machine, Laws((), (), plans), budget.open, apart=True)
    with uncollected():
        cut = search.run(budget.states, until, progress)
    fired = search.fired_rules()
    there = [rule for rules in machine.rules.values() for rule in rules if fired.get(rule.id)]
    rules = {rule.id: rule for rule in there if not _too_late(rule.id) and not _too_early(rule, plans)}
    return Coverable(rules, frozenset(_points(machine, plans, search)), cut, len(search.seen))


def _told(machine: Machine) -> Machine:
    """Without what no test can say. That a host makes an attempt again by itself is such a thing too, and so is a
    function of the host that fails, or chooses a step."""
    events = {name: kind for name, kind in machine.events.items() if name not in UNTOLD}
    events["attempt"] = replace(events["attempt"], phases=frozenset((Phase.WAITING,)))
    fields = tuple(replace(f, values=_ANSWER.get(f.name, f.values)) for f in events["resolved"].fields)
    events["resolved"] = replace(events["resolved"], fields=fields)
    return replace(machine, events=events)


_ANSWER = {"ok": (1,), "chosen": (0,)}
"""What a function of the host answers in a test."""


def _too_late(id: str) -> bool:
    """What a deadline does to an event that comes after it. In a test the clock rings first, but for a call."""
    event, _, rest = id.partition(".")
    return rest.startswith("late.") and event not in ("call", "tick")


def _too_early(rule: Rule, plans: tuple[Plan, ...]) -> bool:
    """A run starts with all of what is limited per run: only others can have used what there is of other limits."""
    limit = rule.effect.limit
    return rule.id.startswith("start.") and limit >= 0 and plans[limit].limit.scope in (None, "run")


def _points(machine: Machine, plans: tuple[Plan, ...], search: Search) -> Iterator[Point]:
    """Every point of a state that was seen, at an event that can come there."""
    kept = [v.name for v in machine.variables if v.sort is not Sort.METER]
    phases = {state[0] for state in search.seen}
    asked = Points(machine, plans).asked
    for plan in plans:
        for kind in machine.events.values():
            if not plan.counted and kind.phases & phases:
                yield from (Point(plan.limit.id, v) for f in kind.fields if f.name == plan.field for v in f.values)
        if plan.counted:
            place = kept.index(plan.fuel)
            kinds = [kind for name, kind in machine.events.items() if plan in asked[name]]
            for left in (0, 1, 2):
                if any(state[place] == left and _comes(kinds, kept, state) for state in search.seen):
                    yield Point(plan.limit.id, left)


def _comes(kinds: list[EventKind], kept: list[str], state: State) -> bool:
    values = dict(zip(kept, state, strict=False))
    return any(state[0] in kind.phases and evaluate(kind.when, values, {}) for kind in kinds)


def runs_to(policy: Policy, wanted: set[str], budget: Budget) -> Iterator[tuple[str, tuple[TraceStep, ...]]]:
    """Shortest runs that end with one of these rules (by id), a few for each: simple ones before others.

    Whoever has what it wanted of a rule takes it out of ``wanted``; once that is empty nothing more is searched for.
    """
    until = time.perf_counter() + budget.seconds
    for world in _SIMPLE:
        if not wanted:
            return
        machine = _told(around(build(policy), policy, world))
        search = Search(machine, Laws((), (), plans_of(policy)), budget.open)
        with uncollected():
            search.run(budget.states, until)
            found = _Firsts(search, wanted).find(until)
        for id, runs in found.items():
            for run in runs:
                yield id, trace(machine, run)


class _Firsts:
    """The first branches of the wanted rules, in the order in which a search has met their states."""

    def __init__(self, search: Search, wanted: set[str]) -> None:
        self.search = search
        self.found: dict[str, list[list[Branch]]] = {id: [] for id in wanted}
        self.kinds: set[tuple[str, tuple[tuple[str, int], ...]]] = set()

    def find(self, until: float) -> dict[str, list[list[Branch]]]:
        missing = self.found
        for number, state in enumerate(self.search.seen):
            if number % 256 == 0 and (time.perf_counter() > until or all(len(r) >= _RUNS for r in missing.values())):
                break
            function = self.search.functions.get(state[0])
            if function is not None:
                self._look(state, function)
        return self.found

    def _look(self, state: State, function: Callable[..., None]) -> None:
        after: dict[State, Origin | None] = {}
        fired = [0] * len(self.search.next.branches)
        function(state, after, lambda s: None, fired, [0] * len(self.search.held), lambda *_: None)
        for place, count in enumerate(fired):
            if count:
                self._keep(state, place)
        for origin in after.values():
            if origin is not None and not isinstance(origin[1], int):
                self._keep(state, origin[1])

    def _keep(self, state: State, label: int | tuple[Branch, ...]) -> None:
        branches = (self.search.next.branches[label],) if isinstance(label, int) else label
        for branch in branches:
            runs = self.found.get(branch.rule.id)
            kind = branch.rule.id, tuple(sorted(branch.fields.items()))
            if runs is not None and len(runs) < _RUNS and kind not in self.kinds:
                self.kinds.add(kind)
                runs.append(self.search.path((state, label)))


__all__ = ["UNTOLD", "Coverable", "Point", "Points", "coverable", "runs_to"]
