"""Every reachable state for **all** limits at once: what is left of a limit is 0, 1, or *many*.

Rules and laws compare what is left with 0 and 1 only, so nothing but time tells two larger numbers apart. The
successors are those of the exact search, generated for the policy with small numbers; what a step takes
from *many* may leave many. That covers every limit from 1 on and rounds of any size, and more than can happen:
what is found broken here is a suspicion until the exact search has found a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from engine.core.machine.build import build
from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var
from engine.core.machine.laws import Laws, laws_of
from engine.core.machine.machine import Grant, Machine, Phase, Refill, Rule, Sort, Spend
from engine.core.policy import Policy
from engine.verify.cycles import Edge
from engine.verify.endless import Move, endless, spent_by
from engine.verify.many import ROUND, Numbers, State
from engine.verify.small_numbers import MANY, with_small_numbers
from engine.verify.successors import IMPOSSIBLE, names_of, successors
from engine.verify.whole_rounds import any_size

_CHUNK = 256
"""States between two looks at the budget."""

_EDGES = 1_500_000
"""Transitions among which a run without an end is looked for; more would not fit into memory well."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """What holds for all limits of this shape. ``suspected``: law and words of what may be broken.

    ``never`` are the ids of rules that no run fires. ``circle`` are the rules of a shortest one that a run may go
    round for ever, empty where every run ends, ``None`` where that was not looked at. ``cut`` says why not every state
    was visited, or why these states do not stand for all limits; it is empty otherwise.
    """

    states: int
    transitions: int
    seconds: float
    suspected: tuple[tuple[str, str], ...] = ()
    never: tuple[str, ...] = ()
    circle: tuple[Rule, ...] | None = None
    cut: str = ""

    @property
    def proved(self) -> bool:
        """Every law holds, whatever the numbers of the policy."""
        return not self.suspected and not self.cut


def saturate(
    policy: Policy,
    *,
    made: Callable[[Policy], Machine] = build,
    watched: Callable[[Policy], Laws] = laws_of,
    max_states: int = 300_000,
    max_seconds: float = 60.0,
    ends: bool = True,
) -> Saturation:
    """Visit every state of the policies of this shape, or as many as the budget allows.

    ``made`` and ``watched`` are handed the policy with small numbers. Without ``ends`` no circle is looked for.
    """
    started = time.perf_counter()
    small = with_small_numbers(policy)
    machine, laws = any_size(made(small), small), watched(small)
    if outside := outside_fragment(machine, laws):
        return Saturation(0, 0, time.perf_counter() - started, cut=outside)
    search = Search(small, machine, laws)
    cut = search.run(max_states, started + max_seconds)
    drifted = "what is left and what the laws count drift apart" if search.numbers.drifted else ""
    suspected = dict.fromkeys((laws.checks[i].law, laws.checks[i].broken) for i in sorted(search.faults))
    return Saturation(
        states=len(search.seen),
        transitions=(transitions := sum(search.fired)),
        suspected=tuple(suspected),
        never=() if cut else search.never(),
        circle=None if cut or not ends or transitions > _EDGES else search.circle(started + max_seconds),
        cut=cut or drifted,
        seconds=time.perf_counter() - started,
    )


def outside_fragment(machine: Machine, laws: Laws) -> str:
    """Why small numbers cannot stand for all of them; empty where they can."""
    counters = {v.name for v in machine.variables if v.sort is Sort.FUEL}
    counters |= {g.name for g in laws.ghosts if any(isinstance(case.update, Grant | Spend | Refill) for case in g.on)}
    guards = [rule.guard for rules in machine.rules.values() for rule in rules]
    guards += [term for check in laws.checks for term in (check.premise, check.demand)]
    guards += [case.guard for ghost in laws.ghosts for case in ghost.on]
    for left, right in (sides for guard in guards for sides in _compared(guard)):
        told = {side.name for side in (left, right) if isinstance(side, Var)} & counters
        if told and not (isinstance(right, Lit) and right.value < MANY):
            return f"numbers of {told.pop()} are told apart that are all many here"
    return ""


def _compared(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    match expr:
        case Le(left, right) | Eq(left, right):
            yield left, right
        case Not(of):
            yield from _compared(of)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _compared(part)
        case Var() | Field() | Lit():
            return


class _Sink:
    """Takes the successors that the generated functions put among the seen, with the branch that led there."""

    def __init__(self, take: Callable[[State, State, int], None]) -> None:
        self._take = take

    def __contains__(self, state: State) -> bool:
        return False

    def __setitem__(self, state: State, origin: tuple[State, int]) -> None:
        self._take(origin[0], state, origin[1])


class _Moves:
    """What the rules of branches do to fuels, told apart by which of those that they spend of are empty."""

    def __init__(self, rules: list[Rule], place: dict[str, int]) -> None:
        self._rules, self._place = rules, place
        self._spent = [tuple(place[name] for name in sorted(spent_by(rule))) for rule in rules]
        self._number: dict[tuple[int, tuple[bool, ...]], int] = {}
        self.known: list[Move] = []

    def number(self, label: int, state: State) -> int:
        """Of the move that this branch makes in this state."""
        key = (label, tuple(state[at] > 0 for at in self._spent[label]))
        if key not in self._number:
            left = {name for name in spent_by(self._rules[label]) if state[self._place[name]]}
            self._number[key] = len(self.known)
            self.known.append(Move.of(self._rules[label], left))
        return self._number[key]


class Search:
    """One search. ``seen`` are the states; ``machine`` and ``laws`` must be those of a policy with small numbers."""

    def __init__(self, policy: Policy, machine: Machine, laws: Laws) -> None:
        self.machine, self.laws = machine, laws
        self.next = successors(machine, laws, ROUND)
        names = names_of(machine, laws)
        self._place = {name: i for i, name in enumerate(names)}
        self.numbers = Numbers(policy, machine, laws, names)
        self.refilled = [
            frozenset(self._place[u.var] for u in branch.rule.updates if isinstance(u, Refill))
            for branch in self.next.branches
        ]
        self.fired = [0] * len(self.next.branches)
        self.faults: set[int] = set()
        self.seen: set[State] = set(self.numbers.initial(self.next.initial))
        self._following: list[State] = []

    def run(self, max_states: int, until: float) -> str:
        """Level by level; returns why it stopped early, if it did."""
        sink, level = _Sink(self._take), list(self.seen)
        while level:
            self._following = []
            for first in range(0, len(level), _CHUNK):
                self._expand(level[first : first + _CHUNK], sink, self.fired)
                if len(self.seen) > max_states:
                    return f"stopped after {max_states} states"
                if time.perf_counter() > until:
                    return "stopped because its time was over"
            level = self._following
        return ""

    def never(self) -> tuple[str, ...]:
        """Rules that no run of any policy of this shape fires."""
        fired = {branch.rule.id for branch, count in zip(self.next.branches, self.fired, strict=True) if count}
        known = (rule for rules in self.machine.rules.values() for rule in rules if rule.effect.kind != IMPOSSIBLE)
        return tuple(rule.id for rule in known if rule.id not in fired)

    def circle(self, until: float) -> tuple[Rule, ...] | None:
        """What a run may do over and over; only after a complete search. ``None`` where there was no time for it.

        Left out are a host that repeats an attempt in flight by itself, as often as it likes, and a provider's pauses,
        of which each call has a fixed number.
        """
        place = {state: number for number, state in enumerate(self.seen)}
        moves = _Moves([branch.rule for branch in self.next.branches], self._place)
        edges: dict[Edge, None] = {}

        def take(s: State, n: State, label: int) -> None:
            event = self.next.branches[label].event
            if event == "paused" or (event == "attempt" and s[0] == Phase.CALLING):
                return
            move = moves.number(label, s)
            for after in self.numbers.meant(s, n, self.refilled[label]):
                if after != s:
                    edges.setdefault(Edge(place[s], place[after], move))

        sink, fired, states = _Sink(take), [0] * len(self.fired), list(self.seen)
        for first in range(0, len(states), _CHUNK):
            self._expand(states[first : first + _CHUNK], sink, fired)
            if time.perf_counter() > until:
                return None
        return endless(len(place), tuple(edges), moves.known, until)

    def _expand(self, states: Iterable[State], sink: _Sink, fired: list[int]) -> None:
        functions, held = self.next.functions, bytearray(len(self.laws.checks))
        for s in states:
            function = functions.get(s[0])
            if function is not None:
                function(s, sink, _ignore, fired, held, self._broke)

    def _take(self, s: State, n: State, label: int) -> None:
        for after in self.numbers.meant(s, n, self.refilled[label]):
            if after not in self.seen:
                self.seen.add(after)
                self._following.append(after)

    def _broke(self, check: int, state: State, label: int) -> None:
        self.faults.add(check)


def _ignore(state: State) -> None:
    """The generated functions hand on each state that is new to them; here the sink is told."""
