"""Facts that every step keeps, and the laws that follow from them, whatever the numbers are.

``keep`` leaves out guesses until what is left is kept by every reaction (Houdini); ``unproved`` asks of each law
whether some reaction breaks it from a state in which the facts hold. Both need one step only (induction with k = 1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from engine.core.machine.machine import Phase
from engine.verify.symbolic.encoding import Encoding, Reaction
from engine.verify.symbolic.facts import Fact
from engine.verify.symbolic.solver import Asking, Terms
from engine.verify.symbolic.terms import Term, Truth, every, symbol


class Induction:
    """One encoding with facts about it. ``until`` is when all questions must be answered."""

    def __init__(self, encoding: Encoding, facts: Iterable[Fact], until: float) -> None:
        self.encoding = encoding
        self.state: dict[str, Term] = {name: symbol(name) for name in encoding.names}
        facts = [f for f in facts if all(name in self.state for name, _ in f.parts)]
        self.facts: dict[int, list[Fact]] = defaultdict(list)
        for fact in dict.fromkeys(self._first(facts)):
            self.facts[fact.phase].append(fact)
        self._after: dict[tuple[int, Fact], Truth] = {}
        self._here: dict[Fact, Truth] = {}
        self.terms = Terms(self._names(), self._formulas())
        self.asking = Asking(self.terms, until)
        self._from: dict[int, list[int]] = defaultdict(list)
        for number, reaction in enumerate(encoding.reactions):
            self._from[reaction.phase].append(number)

    def _first(self, facts: Iterable[Fact]) -> list[Fact]:
        """Facts that hold before a run has begun, or are about later."""
        initial = self.encoding.initial
        return [f for f in facts if f.phase != Phase.NEW or f.of(initial) is True]

    def _names(self) -> list[str]:
        symbols = {name for reaction in self.encoding.reactions for name in reaction.symbols}
        numbers = {name for term in self.encoding.initial.values() for name in _symbols(term)}
        return sorted({*self.encoding.names, *symbols, *numbers, *_symbols(self.encoding.assumed)})

    def _formulas(self) -> Iterable[Truth]:
        yield self.encoding.assumed
        yield self._start()
        for facts in self.facts.values():
            for fact in facts:
                self._here[fact] = fact.of(self.state)
                yield self._here[fact]
        for number, reaction in enumerate(self.encoding.reactions):
            yield reaction.when
            after = {**self.state, **reaction.after}
            for fact in self.facts.get(reaction.to, ()):
                kept = fact.of(after)
                if kept is not True and not (kept == self._here[fact] and reaction.phase == reaction.to):
                    self._after[number, fact] = kept
                    yield kept
            for _, bad in reaction.broken:
                yield bad

    def _start(self) -> Truth:
        """Before a run nothing has happened: every part of the state is as it is at first."""
        return every(f"(= {self.state[n]} {_text(v)})" for n, v in self.encoding.initial.items())

    # ---- facts

    def keep(self) -> int:
        """Leave out every fact that some reaction does not keep; returns how many are left. Raises ``OutOfTime``."""
        waiting = sorted(self._from)
        while waiting:
            phase = waiting.pop(0)
            changed = self._keep_from(phase)
            for other in sorted(changed):
                if other not in waiting:
                    waiting.append(other)
        return sum(len(facts) for facts in self.facts.values())

    def _keep_from(self, phase: int) -> set[int]:
        """The phases of which a fact was left out, because a reaction in this phase does not keep it."""
        changed: set[int] = set()
        self._assume(phase)
        for number in self._from[phase]:
            reaction = self.encoding.reactions[number]
            open_facts = [f for f in self.facts.get(reaction.to, ()) if (number, f) in self._after]
            if not open_facts:
                continue
            self.asking.push(self.terms[reaction.when])
            while open_facts:
                after = [self.terms[self._after[number, fact]] for fact in open_facts]
                self.asking.push(self.terms.none_of(self.terms.all_of(after)))
                possible = self.asking.possible()
                lost = {f for f, a in zip(open_facts, after, strict=True) if possible and not self.asking.so(a)}
                self.asking.pop()
                if not possible:
                    break
                self.facts[reaction.to] = [f for f in self.facts[reaction.to] if f not in lost]
                open_facts = [f for f in open_facts if f not in lost]
                changed.add(reaction.to)
            self.asking.pop()
        self.asking.pop()
        return changed

    def _assume(self, phase: int) -> None:
        here = [self.terms[self._here[fact]] for fact in self.facts.get(phase, ())]
        start = [self.terms[self._start()]] if phase == Phase.NEW else []
        self.asking.push(self.terms[self.encoding.assumed], *start, *here)

    # ---- laws

    def unproved(self) -> dict[int, Reaction]:
        """Checks that may be broken although all facts hold, with a reaction that does it. Raises ``OutOfTime``."""
        found: dict[int, Reaction] = {}
        for phase in sorted(self._from):
            self._assume(phase)
            suspects = [(self.encoding.reactions[n], bad) for n in self._from[phase] for bad in self._broken(n)]
            suspects = [(reaction, bad) for reaction, bad in suspects if bad[0] not in found]
            self._sort_out(suspects, found)
            self.asking.pop()
        return found

    def _broken(self, number: int) -> Sequence[tuple[int, Truth]]:
        return self.encoding.reactions[number].broken

    def _sort_out(self, suspects: list[tuple[Reaction, tuple[int, Truth]]], found: dict[int, Reaction]) -> None:
        while suspects:
            bads = [self.terms.all_of([self.terms[r.when], self.terms[bad]]) for r, (_, bad) in suspects]
            self.asking.push(self.terms.any_of(bads))
            possible = self.asking.possible()
            guilty = [s for s, b in zip(suspects, bads, strict=True) if possible and self.asking.so(b)]
            self.asking.pop()
            if not possible:
                return
            for reaction, (index, _) in guilty:
                found.setdefault(index, reaction)
            suspects = [s for s in suspects if s[1][0] not in found]

    # ---- a certificate

    def holds(self) -> str:
        """Is every fact kept, and no law broken? Empty if so, else what is not. Raises ``OutOfTime``."""
        for phase in sorted(self._from):
            self._assume(phase)
            wrong: list[Any] = []
            for number in self._from[phase]:
                reaction = self.encoding.reactions[number]
                lost = [
                    self.terms.none_of(self.terms[self._after[number, f]])
                    for f in self.facts.get(reaction.to, ())
                    if (number, f) in self._after
                ]
                lost += [self.terms[bad] for _, bad in reaction.broken]
                if lost:
                    wrong.append(self.terms.all_of([self.terms[reaction.when], self.terms.any_of(lost)]))
            if wrong:
                self.asking.push(self.terms.any_of(wrong))
                possible = self.asking.possible()
                self.asking.pop()
                if possible:
                    return f"a step from the phase `{Phase.NAMES[phase]}` does not keep what it says, or breaks a law"
            self.asking.pop()
        return ""

    def kept(self) -> tuple[Fact, ...]:
        """The facts that are left."""
        return tuple(fact for _, facts in sorted(self.facts.items()) for fact in facts)


def _text(value: Term) -> str:
    return value if isinstance(value, str) else str(value)


def _symbols(formula: Term | Truth) -> set[str]:
    return set(formula.split("|")[1::2]) if isinstance(formula, str) else set()
