"""Numbers of which only 0, 1 and *many* are told apart: what a step of the small machine may have made of them.

A variable and the ghost that counts the same are *linked*: they move together, so that their difference stays exact
while both are many. Where it grows beyond 1, what follows shows nothing (``drifted``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.core.machine.failure_plan import failure_plans
from engine.core.machine.laws import Laws
from engine.core.machine.machine import Machine, Phase, Sort
from engine.core.policy import Policy, Retry
from engine.verify.small_numbers import MANY
from engine.verify.successors import HELD, JUDGED

State = tuple[int, ...]
Values = tuple[int, ...]

ROUND = 1_000
"""Calls that a round may have: more than are ever told apart."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A variable and its ghost, by their places. ``limit``: a limit of 1 or more; ``thread``: used by earlier runs."""

    at: tuple[int, int]
    limit: bool = False
    thread: bool = False


class Numbers:
    """The counters of a machine and its laws, by their places in a state of the search."""

    def __init__(self, policy: Policy, machine: Machine, laws: Laws, names: Sequence[str]) -> None:
        self._place = {name: i for i, name in enumerate(names)}
        self.linked = tuple(self._links(policy, laws))
        self._in_round = tuple(self._place[name] for name in ("open", "running", HELD, "with_people"))
        known = {at for link in self.linked for at in link.at} | set(self._in_round)
        fuels = {self._place[v.name] for v in machine.variables if v.sort is Sort.FUEL}
        self._alone = tuple(sorted(fuels - known))
        self._judged = self._place[JUDGED]
        self._known: dict[tuple[bool, bool, Values, Values], tuple[Values, ...]] = {}
        self.drifted = False

    def _links(self, policy: Policy, laws: Laws) -> Iterator[Linked]:
        pairs: list[tuple[str | None, str, bool, bool]] = [("empties_left", "empties", False, False)]
        for plan in laws.plans:
            if plan.counted:
                thread = plan.limit.scope == "thread"
                pairs.append((plan.fuel, f"left_of_{plan.name}", plan.maximum > 0, thread))
            pairs.append((plan.asks_left, f"asks_left_of_{plan.name}", False, False))
        for failure in failure_plans(policy):
            for position, step in failure.steps():
                if isinstance(step, Retry):
                    ghost = f"retries_of_{failure.index}_{position + 1}"
                    pairs.append((failure.retries(position), ghost, False, False))
        for variable, ghost, limit, thread in pairs:
            if variable in self._place and ghost in self._place:
                yield Linked((self._place[variable], self._place[ghost]), limit, thread)

    def initial(self, state: State) -> Iterator[State]:
        """Each limit is 1 or many; what earlier runs of a thread have used is a field of the run's start."""
        free = [link for link in self.linked if link.limit and not link.thread]
        for numbers in itertools.product((MANY, 1), repeat=len(free)):
            values = list(state)
            for link, number in zip(free, numbers, strict=True):
                for at in link.at:
                    values[at] += number - MANY
            yield tuple(values)

    def meant(self, s: State, n: State, refilled: frozenset[int]) -> Iterator[State]:
        """Every state that successor ``n`` of ``s`` stands for; ``refilled``: set to a number of the policy."""
        choices = [self._choices(link, s, n, refilled) for link in self.linked]
        for *picked, in_round in itertools.product(*choices, self._rounds(s, n)):
            state = list(n)
            for link, values in zip(self.linked, picked, strict=True):
                state[link.at[0]], state[link.at[1]] = values
            for at, value in zip(self._in_round, in_round, strict=True):
                state[at] = value
            if MANY < state[self._judged] < ROUND:
                state[self._judged] = MANY
            yield from self._counted_alone(s, state)

    def _counted_alone(self, s: State, state: list[int]) -> Iterator[State]:
        """Fuels without a ghost of their own."""
        changed = [at for at in self._alone if state[at] != s[at]]
        if not changed:
            yield tuple(state)
            return
        options = [range(state[at], MANY + 1) if s[at] >= MANY else (state[at],) for at in changed]
        for values in itertools.product(*options):
            for at, value in zip(changed, values, strict=True):
                state[at] = min(value, MANY)
            yield tuple(state)

    def _choices(self, link: Linked, s: State, n: State, refilled: frozenset[int]) -> tuple[Values, ...]:
        a, b = link.at
        old, new = (s[a], s[b]), (n[a], n[b])
        if link.thread and s[0] == Phase.NEW:
            return tuple((x, x) for x in ((1, MANY) if new[0] else (0,)))
        return (new,) if old == new else self._after(link.limit, a in refilled, old, new)

    def _rounds(self, s: State, n: State) -> tuple[Values, ...]:
        """Calls that wait for a person, and the others whose result is awaited; each with its ghost."""
        o, r, h, p = self._in_round
        old, new = (s[h], s[p], s[o] - s[h], s[r] - s[p]), (n[h], n[p], n[o] - n[h], n[r] - n[p])
        if old == new:
            return ((n[o], n[r], n[h], n[p]),)
        held, others = (self._after(False, False, old[i : i + 2], new[i : i + 2]) for i in (0, 2))
        return tuple((x + a, y + b, a, b) for (a, b), (x, y) in itertools.product(held, others))

    def _after(self, limit: bool, refilled: bool, old: Values, new: Values) -> tuple[Values, ...]:
        key = (limit, refilled, old, new)
        if key not in self._known:
            self._known[key] = tuple(dict.fromkeys(self._told(values) for values in _outcomes(*key)))
        return self._known[key]

    def _told(self, values: Values) -> Values:
        """As far as numbers are told apart: the least of several large ones is many, the others differ from it."""
        least = min(values)
        if least < MANY:
            return tuple(min(value, MANY) for value in values)
        self.drifted |= max(values) - least > 1
        return tuple(MANY + min(value - least, 1) for value in values)


def _outcomes(limit: bool, refilled: bool, old: Values, new: Values) -> Iterator[Values]:
    """What a step may have made of all that ``old`` stands for, where it makes ``new`` of ``old`` itself."""
    if refilled and min(new) == max(new) == MANY:
        yield from ((1, 1), new)
    elif min(old) >= MANY:
        for more in range(max(0, MANY - min(new)) + 1):
            yield tuple(value + more for value in new)
    elif limit and new[0] - old[0] == new[1] - old[1] > 0:
        for by in range(1, MANY + 1):
            yield tuple(value + by for value in old)
    else:
        either = [range(y, MANY + 1) if x >= MANY and y < x else (y,) for x, y in zip(old, new, strict=True)]
        yield from itertools.product(*either)
