"""Two machines told the same, for large limits: of what is left of a limit only a few numbers are told apart.

Rules compare what is left with small numbers only. Where more than those is left in both machines, the search goes on
as if any such number might be left, and keeps how far the two are apart, exactly. That is more than can happen, so
whatever is decided otherwise in some run is among what is found; what is found need not happen, and has no run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var
from engine.core.machine.machine import Machine, Phase, Refill, Set, Sort
from engine.core.policy import Policy
from engine.verify.explore import uncollected
from engine.verify.outlooks import Outlook
from engine.verify.product import Joint, Product, alone

Values = tuple[int, ...]


@dataclass(frozen=True)
class Differences:
    """Every kind of difference that there may be: event, old and new outlook. ``cut`` says why it is not all of them.

    Numbers up to ``told_apart`` are themselves; what is more is many.
    """

    kinds: tuple[tuple[str, Outlook, Outlook], ...]
    told_apart: int
    states: int
    transitions: int
    cut: str = ""


def differences(
    policies: Sequence[Policy],
    machines: Sequence[Machine],
    *,
    max_states: int,
    max_seconds: float,
    max_open: int = 2,
) -> Differences:
    """Follow all runs of two policies with large limits."""
    search = _Many(policies, alone(policies, machines, plain=False), max_open)
    with uncollected():
        cut = search.run(max_states, max_seconds, lambda states, depth: None).cut
    if search.strayed:
        cut = "more is taken at once than was thought"
    elif search.lost:
        cut = cut or "the two come to stand apart without deciding otherwise"
    outlooks = search.outlooks.found
    kinds = tuple((event, outlooks[one], outlooks[two]) for event, one, two in search.found)
    return Differences(kinds, search.many - 1, len(search.seen), search.transitions, cut)


def largest(machines: Sequence[Machine]) -> int:
    """The largest number that a search through both has to count down from."""
    linked = _linked(machines)
    return max((v.initial for m in machines for v in m.variables if v.name in linked), default=0)


class _Many(Product):
    def __init__(self, policies: Sequence[Policy], machines: Sequence[Machine], max_open: int) -> None:
        super().__init__(policies, machines, max_open, plain=False)
        self.linked = _linked(machines)
        self.most = 2 * max_open
        """More is not taken in one event."""
        self.many = max(self.linked.values(), default=0) + 1 + self.most
        """From here on numbers are not told apart: also less by ``most`` is compared with nothing."""
        places = [{name: i for i, name in enumerate(side.names)} for side in self.sides]
        self.groups = [[(n, at[name]) for n, at in enumerate(places) if name in at] for name in self.linked]
        self.strayed = False

    def _reached(self, state: Joint, number: int, after: Joint, following: list[Joint]) -> None:
        for one in self._meant(state, after):
            super()._reached(state, number, one, following)

    def _meant(self, state: Joint, after: Joint) -> Iterator[Joint]:
        """Every state that one after this one stands for."""
        begins = state[0][0] == Phase.NEW
        choices = [self._choices(group, state, after, begins) for group in self.groups]
        for picked in itertools.product(*choices):
            sides = [list(after[0]), list(after[1])]
            for group, values in zip(self.groups, picked, strict=True):
                for (side, at), value in zip(group, values, strict=True):
                    sides[side][at] = value
            yield (tuple(sides[0]), tuple(sides[1]), *after[2:])

    def _choices(self, group: Sequence[tuple[int, int]], state: Joint, after: Joint, begins: bool) -> list[Values]:
        old = tuple(self._value(state, place) for place in group)
        new = tuple(self._value(after, place) for place in group)
        if begins or min(old) < self.many:
            return [self._told(new)]
        if old == new:
            return [old]
        lost = max(0, min(old) - min(new), *(a - b for a, b in zip(old, new, strict=True)))
        self.strayed |= lost > self.most
        return list(dict.fromkeys(self._told(tuple(v + more for v in new)) for more in range(lost + 1)))

    def _value(self, state: Joint, place: tuple[int, int]) -> int:
        side, at = place
        return state[1][at] if side else state[0][at]

    def _told(self, values: Values) -> Values:
        """The same numbers, or, where all are many, as far apart with the least of them as small as many can be."""
        more = max(0, min(values) - self.many)
        return tuple(value - more for value in values)


def _linked(machines: Sequence[Machine]) -> dict[str, int]:
    """Counters that are only spent and granted, and only compared with constants: the largest of these."""
    found: dict[str, int] = {}
    for machine in machines:
        rules = [rule for rules in machine.rules.values() for rule in rules]
        put = {u.var for rule in rules for u in rule.updates if isinstance(u, Set | Refill)}
        fuels = {v.name for v in machine.variables if v.sort is Sort.FUEL} - put
        for name in fuels:
            found.setdefault(name, 0)
        for left, right in (sides for rule in rules for sides in _comparisons(rule.guard)):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, Var) and side.name in fuels:
                    constant = other.value if isinstance(other, Lit) else -1
                    known = found[side.name]
                    found[side.name] = -1 if constant < 0 or known < 0 else max(known, constant)
        for name in put:
            found[name] = -1
    return {name: most for name, most in sorted(found.items()) if most >= 0}


def _comparisons(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    match expr:
        case Le(left, right) | Eq(left, right):
            yield left, right
        case Not(of):
            yield from _comparisons(of)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _comparisons(part)
        case Var() | Field() | Lit():
            return
