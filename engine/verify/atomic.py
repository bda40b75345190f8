"""Rounds under an ``atomic`` limit: judged as a whole, because one call that does not fit refuses them all.

``step`` folds such a round a second time from the start. What the first fold did is never seen, so
the calls of a round are one transition here, made by interpreting the machine.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.core.machine.expr import names
from engine.core.machine.interpret import react
from engine.core.machine.laws import Laws
from engine.core.machine.machine import Machine, Rule, Sort
from engine.core.machine.monitors import watch
from engine.verify.observe import Observation, observe
from engine.verify.successors import BESIDE, Branch

State = tuple[int, ...]
Broke = Callable[[int, State, tuple[Branch, ...]], None]

_FLAGS = ("unknown", "invalid", "denied", "limited", "broken", "above", "asks", "no_time", "unasked")
"""What the rules tell apart: what comes first decides."""


def is_atomic(machine: Machine) -> bool:
    """Does a limit refuse whole rounds?"""
    return any("round_refused" in names(rule.guard) for rule in machine.rules["tool"])


@dataclass(frozen=True, slots=True)
class _Round:
    """One way in which a round can be judged: what becomes of the variables that verdicts touch, and what is seen."""

    after: State
    branches: tuple[Branch, ...]
    seen: tuple[Observation, ...]
    held: int


_SEEN = ("execute", "asked", "replied", "extended", "unresolved", "ungrown")
"""What can be observed of verdicts."""


class AtomicRounds:
    """The judging of whole rounds of at most ``max_open`` calls.

    Verdicts read and change few of the variables and ghosts: what follows from the same ones is worked out once.
    """

    def __init__(self, machine: Machine, laws: Laws, max_open: int) -> None:
        self.machine, self.laws, self.max_open = machine, laws, max_open
        self.kept = [i for i, v in enumerate(machine.variables) if v.sort is not Sort.METER]
        self.width = len(self.kept)
        self.given_up: Counter[str] = Counter()
        self._visits: Counter[State] = Counter()
        fields = [f for f in machine.events["tool"].fields if f.name in _FLAGS]
        self.kinds: list[dict[str, int]] = [{}, *({f.name: value} for f in fields for value in f.values if value)]
        self.touched = self._touched_variables()
        self.watching = self._watching()
        self._known: dict[State, list[_Round]] = {}
        self._seen: dict[tuple[int, State], tuple[tuple[int, ...], frozenset[int], State]] = {}

    def _touched_variables(self) -> list[int]:
        rules = self.machine.rules["tool"]
        touched = {name for rule in rules for name in names(rule.guard)} | {u.var for r in rules for u in r.updates}
        return [place for place, i in enumerate(self.kept) if self.machine.variables[i].name in touched]

    def _watching(self) -> list[int]:
        """The ghosts that what is seen of verdicts changes, or that a check of it reads."""
        checks = [check for check in self.laws.checks if check.seen in _SEEN]
        read = {name for check in checks for part in (check.premise, check.demand) for name in names(part)}
        for ghost in self.laws.ghosts:
            cases = [case for case in ghost.on if case.seen in _SEEN]
            read |= {ghost.name for _ in cases} | {name for case in cases for name in names(case.guard)}
        return [place for place, ghost in enumerate(self.laws.ghosts) if ghost.name in read]

    def judge(
        self, s: State, seen: dict[State, object], push: Callable[[State], None], held: list[int], broke: Broke
    ) -> None:
        """Every round that can follow; it is then complete, or runs."""
        values, ghosts = s[: self.width], s[self.width + len(BESIDE) :]
        for round in self._rounds(values):
            after = list(values)
            for place, value in zip(self.touched, round.after, strict=True):
                after[place] = value
            faults, watched = self._watch(ghosts, round, held)
            n = (*after, self.max_open, round.held, 0, *watched)
            if faults:
                broke(faults[0], s, round.branches)
            elif n not in seen:
                seen[n] = (s, round.branches)
                push(n)

    def _rounds(self, values: State) -> list[_Round]:
        key = tuple(values[place] for place in self.touched)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = list(self._worked_out(values))
        self._visits[key] += 1
        return known

    @property
    def fired(self) -> Counter[str]:
        """How often each rule did."""
        counts = Counter(self.given_up)
        for key, visits in self._visits.items():
            for branch in itertools.chain.from_iterable(round.branches for round in self._known[key]):
                counts[branch.rule.id] += visits
        return counts

    def _worked_out(self, values: State) -> Iterator[_Round]:
        for size in range(1, self.max_open + 1):
            for round in itertools.product(self.kinds, repeat=size):
                after, branches = self._fold(values, round, refused=0)
                if branches[-1].rule.effect.kind == "suspend":
                    # ``step`` gives the judging up: that the round would crowd a limit is a field of ``round``.
                    self.given_up.update(b.rule.id for b in branches)
                    continue
                refused = next((b.rule.effect.limit + 1 for b in branches if self._refuses(b.rule)), 0)
                if refused:
                    after, branches = self._fold(values, round, refused)
                told = [observe(self.laws.plans, b.event, b.fields, b.rule.effect) for b in branches]
                held = sum(b.rule.effect.kind == "ask" for b in branches)
                moved = tuple(after[place] for place in self.touched)
                yield _Round(moved, branches, tuple(itertools.chain.from_iterable(told)), held)

    def _refuses(self, rule: Rule) -> bool:
        return rule.effect.word == "tool_calls" and self.laws.plans[rule.effect.limit].limit.atomic

    def _fold(self, values: State, round: tuple[dict[str, int], ...], refused: int) -> tuple[State, tuple[Branch, ...]]:
        branches: list[Branch] = []
        everything = {f.name: 0 for f in self.machine.events["tool"].fields} | {"round_refused": refused}
        for kind in round:
            while True:
                fields = {**everything, **kind}
                values, rule = self._react(values, fields)
                branches.append(Branch("tool", fields, rule))
                if rule.effect.kind != "again":
                    break
            if rule.effect.kind == "suspend":
                break
        return values, tuple(branches)

    def _react(self, values: State, fields: dict[str, int]) -> tuple[State, Rule]:
        every = [0] * len(self.machine.variables)  # meters anywhere among them: no rule reads one
        for place, value in zip(self.kept, values, strict=True):
            every[place] = value
        after, rule = react(self.machine, "tool", tuple(every), fields)
        return tuple(after[place] for place in self.kept), rule

    def _watch(self, ghosts: State, round: _Round, held: list[int]) -> tuple[tuple[int, ...], State]:
        key = id(round), tuple(ghosts[place] for place in self.watching)
        known = self._seen.get(key)
        if known is None:
            known = self._seen[key] = self._looked_at(ghosts, round)
        faults, premises, moved = known
        for index in premises:
            held[index] = 1
        after = list(ghosts)
        for place, value in zip(self.watching, moved, strict=True):
            after[place] = value
        return faults, tuple(after)

    def _looked_at(self, ghosts: State, round: _Round) -> tuple[tuple[int, ...], frozenset[int], State]:
        faults: tuple[int, ...] = ()
        held: set[int] = set()
        for kind, fields in round.seen:
            if kind not in _SEEN:
                raise ValueError(f"{kind} is observed of a verdict")
            ghosts, broken, premises = watch(self.laws, ghosts, kind, fields)
            faults += broken
            held.update(premises)
        return faults, frozenset(held), tuple(ghosts[place] for place in self.watching)
