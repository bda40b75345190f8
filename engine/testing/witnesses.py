"""What exploration says of a policy: which of its rules a run can come to, and a shortest run to each.

A rule is one of the machine's that comes from a line of the policy (or from a limit, where a policy has no file); what
is a default is none of them. A run that a search has found is played on ``step`` before anybody sees it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from engine.core.machine.machine import Machine, Rule, Set, Sort, Variable
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.explore import Origin, Search, State
from engine.verify.observe import ends_step
from engine.verify.prove import ALONE, PLAIN
from engine.verify.replay import NoReplay, Played, replayed
from engine.verify.successors import Branch
from engine.verify.traces import TraceStep, trace
from engine.verify.tripping import tripped
from engine.verify.world import World, around

_CAME_BY = "came_by"
"""A variable for the search only: by which rule of the policy a state was entered."""

_MOST_EXTRA = 200
"""States looked at to bring what one event leads to to its end."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search has found out about one policy.

    ``rules`` are all rules that come from its lines, by id, with that line; ``reachable`` those that a run can come to,
    each with a shortest run on ``step``; ``unplayed`` those that a search has come to, but of whose runs none could be
    played, and why. The others no run comes to at these limits. ``cut`` says why the search is not whole, if so.
    """

    policy: Policy
    rules: dict[str, str]
    reachable: dict[str, tuple[Played, ...]]
    unplayed: dict[str, str]
    states: int
    cut: str = ""

    @property
    def never(self) -> tuple[str, ...]:
        """Rules that no run comes to."""
        return tuple(id for id in self.rules if id not in self.reachable and id not in self.unplayed)

    def witness(self, rule: str) -> tuple[Played, ...]:
        """A shortest run to a rule. ``ValueError`` if there is none, with the rules that have one."""
        if rule in self.reachable:
            return self.reachable[rule]
        known = ", ".join(sorted(self.reachable)) or "none"
        why = self.unplayed.get(rule) or ("no run comes to it" if rule in self.rules else "there is no such rule")
        raise ValueError(f"no run to `{rule}`: {why}. Rules with one: {known}")


def explore(policy: Policy, *, max_states: int = 200_000, max_seconds: float = 30.0) -> Explored:
    """Search all states of a policy for its own rules; first in a world as simple as can be, then in a wider one."""
    compiled = compile(policy)
    found = _Found(compiled)
    until = time.perf_counter() + max_seconds
    cut, states = "", 0
    for world in (PLAIN, ALONE):
        if world is PLAIN or found.missing():
            cut, seen = found.search(world, max_states, until)
            states = max(states, seen)
    if found.missing():
        found.opened()
    return Explored(policy, found.rules, found.played, found.unplayed, states, cut)


def own_rules(machine: Machine) -> dict[str, str]:
    """The rules that come from the policy itself, by id, each with its line."""
    rules = [rule for rules in machine.rules.values() for rule in rules]
    return {rule.id: rule.origin for rule in rules if not rule.origin.startswith("default")}


@dataclass
class _Found:
    """Rules found so far."""

    compiled: Compiled
    played: dict[str, tuple[Played, ...]] = field(default_factory=dict)
    unplayed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = own_rules(self.compiled.machine)

    def missing(self) -> list[str]:
        return [id for id in self.rules if id not in self.played]

    def search(self, world: World, max_states: int, until: float) -> tuple[str, int]:
        """Look for the missing rules in this world; why it stopped early, and how many states there were."""
        policy, wanted = self.compiled.policy, self.missing()
        machine = around(self.compiled.machine, policy, world)
        search = Search(_marked(machine, wanted), Laws((), (), plans_of(policy)), 2)
        cut = search.run(max_states, until)
        place = [v.name for v in search.machine.variables if v.sort is not Sort.METER].index(_CAME_BY)
        first: dict[int, State] = {}
        for state, origin in search.seen.items():
            if origin is not None and state[place]:
                first.setdefault(state[place], state)
        for number, state in first.items():
            self._play(wanted[number - 1], trace(machine, _to_the_end(search, machine, state)))
        return cut, len(search.seen)

    def opened(self) -> None:
        """Rules that only an open breaker leads to: a search knows no history that opens one."""
        for run in tripped(self.compiled):
            events = [step.event for step in run]
            for rule in sorted(fired(self.compiled.policy, events) & set(self.missing())):
                shortest = next(n for n in range(1, len(run) + 1) if rule in fired(self.compiled.policy, events[:n]))
                self.played[rule] = tuple(run[:shortest])
                self.unplayed.pop(rule, None)

    def _play(self, rule: str, path: Iterable[TraceStep]) -> None:
        try:
            played = tuple(replayed(self.compiled, tuple(path)))
        except NoReplay as problem:
            self.unplayed.setdefault(rule, str(problem))
            return
        if rule in fired(self.compiled.policy, [step.event for step in played]):
            self.played[rule] = played
            self.unplayed.pop(rule, None)
        else:
            self.unplayed.setdefault(rule, "on the same events `step` takes another rule")


def fired(policy: Policy, events: Iterable[Any]) -> set[str]:
    """The ids of all rules that decide when these events come, those of defaults included."""
    seen: set[str] = set()
    compiled = compile(policy, watch=lambda reaction: seen.add(reaction.rule.id))
    state = compiled.initial
    for event in events:
        state, _ = compiled.step(state, event)
    return seen


def _marked(machine: Machine, wanted: list[str]) -> Machine:
    """The machine with a mark in each state of the wanted rule that has led to it."""
    numbers = {id: number for number, id in enumerate(wanted, 1)}

    def marked(rule: Rule) -> Rule:
        return replace(rule, updates=(*rule.updates, Set(_CAME_BY, numbers.get(rule.id, 0))))

    rules = {event: tuple(map(marked, rules)) for event, rules in machine.rules.items()}
    mark = Variable(_CAME_BY, Sort.FLAG, 0, "the rule that has led here", len(wanted) + 1)
    return replace(machine, variables=(*machine.variables, mark), rules=rules)


def _to_the_end(search: Search, machine: Machine, state: State) -> list[Branch]:
    """A shortest run to a state, and on to where all that its last event leads to has happened."""
    origin = search.seen[state]
    assert origin is not None
    path = search.path(origin)
    if _ends(machine, path[-1]):
        return path
    later: dict[State, Origin | None] = {state: None}
    todo = deque([state])
    while todo and len(later) < _MOST_EXTRA:
        here = todo.popleft()
        function = search.functions.get(here[0])
        if function is None:
            continue
        new: list[State] = []
        function(here, later, new.append, search.fired, search.held, search.broke)
        for following in new:
            more = _path(search, later, following)
            if _ends(machine, more[-1]):
                return [*path, *more]
            todo.append(following)
    return path


def _path(search: Search, seen: dict[State, Origin | None], state: State) -> list[Branch]:
    labels: list[tuple[Branch, ...]] = []
    origin = seen[state]
    while origin is not None:
        label = origin[1]
        labels.append((search.next.branches[label],) if isinstance(label, int) else label)
        origin = seen[origin[0]]
    return [branch for label in reversed(labels) for branch in label]


def _ends(machine: Machine, branch: Branch) -> bool:
    return ends_step(branch.event, branch.rule.effect)
