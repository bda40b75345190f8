"""What may always be so while a run is in a phase: guessed from runs with tiny limits, as plain data.

A guess that is wrong costs time and nothing else: only what is kept by every step is ever used (``induction``).
"""

from __future__ import annotations

import itertools
import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.core.machine.laws import Laws, laws_of
from engine.core.machine.machine import Machine, Phase
from engine.core.policy import Policy
from engine.core.vocabulary import RESOURCES
from engine.verify.explore import Origin, Search
from engine.verify.small_numbers import with_small_numbers
from engine.verify.successors import JUDGED, names_of
from engine.verify.symbolic.encoding import Encoding
from engine.verify.symbolic.solver import OutOfTime
from engine.verify.symbolic.terms import Term, Truth, eq, every, le, minus, no, some
from engine.verify.whole_rounds import REFUSED

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """In ``phase`` something holds of ``parts`` of a state, each a name and a number.

    ``never``: no run comes to this phase; ``is``: the part is that number; ``least``: it is that or more; ``most``:
    that or less; ``apart``: the first part is the second and the first's number more, while a third is in the class of
    its number; ``not_all``: never is each part in the class of its number.

    Class 0 is 0, class 1 is 1, and so on; -1 is everything above 0, and -2 everything above 1.
    """

    phase: int
    kind: str
    parts: tuple[tuple[str, int], ...] = ()

    def of(self, state: Mapping[str, Term]) -> Truth:
        """The fact about a state, but for its phase."""
        if self.kind == "never":
            return False
        if self.kind == "not_all":
            return no(every(_in_class(state[name], x) for name, x in self.parts))
        name, x = self.parts[0]
        if self.kind == "apart":
            other, *only = self.parts[1:]
            while_so = every(_in_class(state[name], x) for name, x in only)
            return some((no(while_so), eq(minus(state[name], state[other[0]]), x)))
        if self.kind == "is":
            return eq(state[name], x)
        return le(x, state[name]) if self.kind == "least" else le(state[name], x)

    def plain(self) -> str:
        """As a certificate has it: ``calling not_all reason 0 pending -1``."""
        return " ".join((Phase.NAMES[self.phase], self.kind, *(f"{name} {x}" for name, x in self.parts)))

    @classmethod
    def read(cls, data: object) -> Fact:
        """Of ``plain``. Raises ``ValueError``."""
        words = data.split(" ") if isinstance(data, str) else []
        if len(words) >= 2 and words[0] in Phase.NAMES and not len(words) % 2:
            phase, kind, *rest = words
            numbers = rest[1::2]
            if len(numbers) in _PARTS.get(kind, ()) and all(re.fullmatch(r"-?[0-9]{1,18}", x) for x in numbers):
                parts = tuple(zip(rest[::2], map(int, numbers), strict=True))
                return cls(Phase.NAMES.index(phase), kind, parts)
        raise ValueError(f"`{str(data)[:60]}` is no fact about a run")


_PARTS = {"never": (0,), "is": (1,), "least": (1,), "most": (1,), "apart": (2, 3), "not_all": (1, 2, 3)}
"""How many parts a fact has, by its kind."""


def _in_class(a: Term, x: int) -> Truth:
    return eq(a, x) if x >= 0 else no(le(a, -1 - x))


Made = Callable[[Policy], Machine]
"""A policy to its machine."""

_FEW = 60
"""States of one level that are followed, where not all are."""

_FAR = 12_000
"""States of a simple world that are looked at."""

_STATES, _SHARE = 6_000, 0.4
"""States of one small policy that are looked at, and the part of the time that is left for all of them."""


def samples(
    policy: Policy, made: Made, simple: Made, until: float, watched: Callable[[Policy], Laws] = laws_of
) -> Iterator[Sample]:
    """States of runs with tiny limits, by policy. ``simple`` makes the same machine in a world in which less happens:
    where there are more states than are looked at, those that are far from the start are found there."""
    began = time.perf_counter()
    until = began + max(0.0, until - began) * _SHARE
    for small in tiny(with_small_numbers(policy)):
        if time.perf_counter() >= until:
            return
        machine, laws = made(small), watched(small)
        search = Search(machine, laws, 2, apart=True)
        cut = search.run(_STATES, until)
        if cut:
            _go_deeper(search, until)
        names = names_of(machine, laws)
        yield Sample(names, tuple(search.seen))
        if cut:
            yield Sample(names, tuple(_far_from_the_start(simple(small), laws, names, until)))


def _far_from_the_start(machine: Machine, laws: Laws, names: Sequence[str], until: float) -> Iterator[Values]:
    """States of a machine that remembers more than these names; what it does not know has not happened."""
    search = Search(machine, laws, 2, apart=True)
    search.run(_FAR, until)
    known = {name: place for place, name in enumerate(names_of(machine, laws))}
    places = [known.get(name, -1) for name in names]
    yield from {tuple(state[at] if at >= 0 else 0 for at in places) for state in search.seen}


def _go_deeper(search: Search, until: float) -> None:
    """Where there are more states than are looked at: on from few of each level only, chosen by lot, to the end."""
    chance, level = random.Random(0), [search.next.initial]
    most = len(search.seen) + 2 * _STATES
    seen: dict[Values, Origin | None] = {}
    while level and len(seen) < most and time.perf_counter() < until:
        following: list[Values] = []
        for state in level:
            function = search.functions.get(state[0])
            if function is not None:
                function(state, seen, following.append, search.fired, search.held, search.broke)
        level = chance.sample(following, min(len(following), _FEW))
    search.seen.update(seen)


def tiny(policy: Policy) -> Iterator[Policy]:
    """The policy with limits so small that a search is short, each of them in turn much smaller than the others."""
    places = [i for i, limit in enumerate(policy.limits) if limit.max and RESOURCES[limit.resource].kind == "counted"]
    choices = [(1,) * len(places), (2,) * len(places)]
    for usual, other in ((7, 1), (4, 1), (5, 2), (1, 4), (2, 5)):
        choices += [tuple(other if i == alone else usual for i in places) for alone in places]
    for numbers in dict.fromkeys(choices):
        given = dict(zip(places, numbers, strict=True))
        limits = (x.model_copy(update={"max": given[i]}) if i in given else x for i, x in enumerate(policy.limits))
        yield policy.model_copy(update={"limits": tuple(limits)})


@dataclass(frozen=True, slots=True)
class Sample:
    """States by the names of their parts."""

    names: tuple[str, ...]
    states: tuple[Values, ...]


def guesses(found: Iterable[Sample], encoding: Encoding, until: float = float("inf")) -> tuple[list[Fact], list[Fact]]:
    """Simple facts, and those about two or three parts at once, which are many. Raises ``OutOfTime``."""
    columns: dict[int, set[Values]] = defaultdict(set)
    names: tuple[str, ...] = ()
    for sample in found:
        names = sample.names
        for state in sample.states:
            columns[state[0]].add(state)
    live = set(range(len(Phase.NAMES))) - {Phase.ENDED}
    simple = [Fact(phase, "never") for phase in sorted(live - set(columns))]
    together: list[Fact] = []
    for phase in sorted(live & set(columns)):
        guessing = _Guessing(phase, names, columns[phase], encoding)
        simple += guessing.simple()
        if time.perf_counter() > until:
            raise OutOfTime("its time was over")
        together += guessing.together()
        if phase == Phase.JUDGING:
            together += _within_rounds(encoding)
    return simple, together


def _within_rounds(encoding: Encoding) -> Iterator[Fact]:
    """What may go with a round that is refused as a whole, which three parts of a state say together."""
    refusing = sorted({x for r in encoding.reactions if isinstance(x := r.after.get(REFUSED), int)})
    watched = ["open", *(n for p in encoding.laws.plans if p.limit.atomic for n in (p.fuel, p.over, p.step or ""))]
    classes = [(n, x) for n in watched if n in encoding.names for x in (0, ABOVE_0)]
    for refused in refusing:
        for a, b in itertools.combinations(classes, 2):
            if a[0] != b[0]:
                yield Fact(Phase.JUDGING, "not_all", ((REFUSED, refused), a, b))
        yield from (Fact(Phase.JUDGING, "not_all", ((REFUSED, refused), a)) for a in classes)


class _Guessing:
    """What is so in all states that were seen in one phase."""

    def __init__(self, phase: int, names: Sequence[str], states: set[Values], encoding: Encoding) -> None:
        self.phase, self.encoding = phase, encoding
        self.columns = {n: column for n, column in zip(names, zip(*states, strict=True), strict=True) if n != "phase"}
        self.judged = self.columns.pop(JUDGED)
        counters = encoding.counters
        self.constant = {
            name: column[0]
            for name, column in self.columns.items()
            if min(column) == max(column) and not (name in counters and column[0] > 1)
        }
        self.varying = [name for name in self.columns if name not in self.constant]
        self.same: dict[str, str] = {}
        """A part that is always as another, and that one."""

    def simple(self) -> Iterator[Fact]:
        """Constants, bounds, and what is always as far from one another."""
        for name, value in self.constant.items():
            yield Fact(self.phase, "is", ((name, value),))
        if set(self.judged) == {0}:
            yield Fact(self.phase, "is", ((JUDGED, 0),))
        yield from self._in_step()
        for name in self.varying:
            column = self.columns[name]
            yield Fact(self.phase, "least", ((name, min(*column, 1)),))
            if name not in self.encoding.counters or max(column) <= 1:
                yield Fact(self.phase, "most", ((name, max(column)),))
                for value in sorted(set(range(min(column), max(column))) - set(column)):
                    yield Fact(self.phase, "not_all", ((name, value),))
        for a, b in itertools.combinations(self.varying, 2):
            differences = {x - y for x, y in zip(self.columns[a], self.columns[b], strict=True)}
            if len(differences) == 1 and abs(difference := differences.pop()) <= 1:
                yield Fact(self.phase, "apart", ((a, difference), (b, 0)))
                self.same.setdefault(b, a)
            elif {a, b} <= self.encoding.counters:
                yield from self._apart_in_places(a, b)

    def _in_step(self) -> Iterator[Fact]:
        """Counters that were always alike and the same number: where that number was chance, they are alike still."""
        counted = [name for name in self.constant if name in self.encoding.counters]
        for name in counted:
            yield Fact(self.phase, "least", ((name, min(self.constant[name], 1)),))
            yield Fact(self.phase, "least", ((name, 0),))
        for a, b in itertools.combinations(counted, 2):
            if self.constant[a] == self.constant[b]:
                yield Fact(self.phase, "apart", ((a, 0), (b, 0)))

    def _apart_in_places(self, a: str, b: str) -> Iterator[Fact]:
        """The same, for places of a ladder."""
        for step in (plan.step for plan in self.encoding.laws.plans):
            if step not in self.varying:
                continue
            places = self.columns[step]
            for place in sorted(set(places)):
                rows = zip(self.columns[a], self.columns[b], places, strict=True)
                differences = {x - y for x, y, here in rows if here == place}
                if differences == {0}:
                    yield Fact(self.phase, "apart", ((a, 0), (b, 0), (step, place)))

    def together(self) -> Iterator[Fact]:
        """What never comes together, where each of it comes alone. Of counters only 0, 1 and more are told apart."""
        names = [name for name in self.varying if name not in self.same]
        told = {name: self._classes(name) for name in names}
        for a, b in itertools.combinations(names, 2):
            yield from self._excluded((a,), [(x,) for x in told[a]], b, told[b])
        for plan in self.encoding.laws.plans:
            counted = self.same.get(plan.fuel, plan.fuel)
            step = self.same.get(plan.step or "", plan.step or "")
            if counted in told and step in told:
                both = list(zip(told[counted], told[step], strict=True))
                for b in names:
                    if b not in (counted, step):
                        yield from self._excluded((counted, step), both, b, told[b])

    def _excluded(self, a: tuple[str, ...], left: Sequence[Values], b: str, right: Sequence[int]) -> Iterator[Fact]:
        seen = set(zip(left, right, strict=True))
        here, there = set(left), sorted(set(right))
        if len(seen) == len(here) * len(there):
            return
        for x in sorted(here):
            missing = [y for y in there if (x, y) not in seen]
            whole = bool(missing) and 0 in there and missing == [y for y in there if y]
            known = tuple(zip(a, x, strict=True))
            for y in (ABOVE_0,) if whole else missing:
                yield Fact(self.phase, "not_all", (*known, (b, y)))

    def _classes(self, name: str) -> list[int]:
        counted = name in self.encoding.counters
        return [ABOVE_1 if counted and value > 1 else value for value in self.columns[name]]


ABOVE_0, ABOVE_1 = -1, -2
"""Classes of numbers: all above 0, and all above 1."""
