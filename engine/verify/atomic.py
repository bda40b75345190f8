"""Rounds under an ``atomic`` limit: judged as a whole, because one call that does not fit refuses them all.

``step`` folds such a round a second time from the start. What the first fold did is never seen, so
the calls of a round are one transition here, made by interpreting the machine.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

from engine.core.machine.expr import names
from engine.core.machine.interpret import react
from engine.core.machine.laws import Laws
from engine.core.machine.machine import Machine, Rule, Sort
from engine.core.machine.monitors import watch
from engine.verify.observe import observe
from engine.verify.successors import BESIDE, Branch

State = tuple[int, ...]
Broke = Callable[[int, State, tuple[Branch, ...]], None]

_FLAGS = ("unknown", "invalid", "denied", "limited", "broken", "above", "asks", "no_time", "unasked")
"""What the rules tell apart: what comes first decides."""


def is_atomic(machine: Machine) -> bool:
    """Does a limit refuse whole rounds?"""
    return any("round_refused" in names(rule.guard) for rule in machine.rules["tool"])


class AtomicRounds:
    """The judging of whole rounds of at most ``max_open`` calls."""

    def __init__(self, machine: Machine, laws: Laws, max_open: int) -> None:
        self.machine, self.laws, self.max_open = machine, laws, max_open
        self.kept = [i for i, v in enumerate(machine.variables) if v.sort is not Sort.METER]
        self.width = len(self.kept)
        self.fired: Counter[str] = Counter()
        fields = [f for f in machine.events["tool"].fields if f.name in _FLAGS]
        self.kinds: list[dict[str, int]] = [{}, *({f.name: value} for f in fields for value in f.values if value)]

    def judge(
        self, s: State, seen: dict[State, object], push: Callable[[State], None], held: list[int], broke: Broke
    ) -> None:
        """Every round that can follow; it is then complete, or runs."""
        values, ghosts = s[: self.width], s[self.width + len(BESIDE) :]
        for after, branches in self._rounds(values):
            faults, watched = self._watch(ghosts, branches, held)
            held_calls = sum(b.rule.effect.kind == "ask" for b in branches)
            n = (*after, self.max_open, held_calls, 0, *watched)
            if faults:
                broke(faults[0], s, branches)
            elif n not in seen:
                seen[n] = (s, branches)
                push(n)

    def _rounds(self, values: State) -> Iterator[tuple[State, tuple[Branch, ...]]]:
        for size in range(1, self.max_open + 1):
            for round in itertools.product(self.kinds, repeat=size):
                after, branches = self._fold(values, round, refused=0)
                if branches[-1].rule.effect.kind == "suspend":
                    # ``step`` gives the judging up: that the round would crowd a limit is a field of ``round``.
                    self.fired.update(b.rule.id for b in branches)
                    continue
                refused = next((b.rule.effect.limit + 1 for b in branches if self._refuses(b.rule)), 0)
                if refused:
                    after, branches = self._fold(values, round, refused)
                self.fired.update(b.rule.id for b in branches)
                yield after, branches

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

    def _watch(self, ghosts: State, branches: tuple[Branch, ...], held: list[int]) -> tuple[tuple[int, ...], State]:
        faults: tuple[int, ...] = ()
        for branch in branches:
            for kind, fields in observe(self.laws.plans, branch.event, branch.fields, branch.rule.effect):
                ghosts, broken, premises = watch(self.laws, ghosts, kind, fields)
                faults += broken
                for index in premises:
                    held[index] = 1
        return faults, ghosts
