"""The laws of one policy for all numbers: proved by facts that every step keeps, refuted by a run, or not known.

A law that the facts do not prove is a suspicion: it becomes a refutation when the exact search finds a run at some
small limits, which is played on ``step``. Unlike the search that stands for all limits
this knows ``atomic`` rounds too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Phase
from engine.core.policy import Policy
from engine.core.step import Compiled, compile
from engine.verify.prove import FREE, Progress, Prover, silent
from engine.verify.small_numbers import nearby
from engine.verify.symbolic.encoding import Encoding, encode
from engine.verify.symbolic.facts import Fact, Made, guesses, samples
from engine.verify.symbolic.induction import Induction
from engine.verify.symbolic.numbers import Marked, marked
from engine.verify.symbolic.solver import OutOfTime
from engine.verify.verdicts import LAWS, Budget, Effort, Verdict
from engine.verify.whole_rounds import any_size
from engine.verify.world import World, around

_SIMPLE = World(ancestors=False, pauses=False, plain=True)
"""A world in which runs come far in few states."""

_PLAYING = 0.5
"""Part of the time that is left for finding a run that breaks what is not proved."""


@dataclass(frozen=True, slots=True)
class LawsProof:
    """``facts`` prove the laws that are proved, for each shape of the numbers by itself."""

    verdicts: tuple[Verdict, ...]
    facts: tuple[tuple[Fact, ...], ...] = ()

    @property
    def proved(self) -> bool:
        return all(verdict.result == "proved" for verdict in self.verdicts)


def shapes(policy: Policy, made: Made = build) -> list[Encoding]:
    """The policy as terms. What a ladder adds is at most the limit; where more than that is not cut to the limit, that
    is a shape of its own."""
    usual = marked(policy)
    found = [_encoded(usual, made)]
    if any(" step " in name and "times" not in name for name in usual.symbols):
        larger = _encoded(marked(policy, capped=True), made)
        if _text(larger, cut=True) != _text(found[0], cut=True):
            found.append(larger)
    return found


def _encoded(numbers: Marked, made: Made) -> Encoding:
    machine = around(any_size(made(numbers.policy), numbers.policy), numbers.policy, FREE)
    return encode(machine, laws_of(numbers.policy), numbers)


def _text(encoding: Encoding, *, cut: bool) -> list[str]:
    """All that can happen, with what ladders add read as the whole limit."""

    def read(value: object) -> str:
        parts = str(value).split("|")
        for place in range(1, len(parts), 2):
            if parts[place].startswith("limit ") and " step " in parts[place] and not parts[place].endswith("times"):
                parts[place] = parts[place].partition(" step ")[0]
        return "|".join(parts)

    reactions = encoding.reactions
    return [f"{r.event} {r.phase} {r.rule.id} {read((r.when, dict(r.after), r.broken))}" for r in reactions]


def laws_for_all_numbers(
    policy: Policy,
    budget: Budget,
    *,
    made: Made = build,
    compiling: Callable[[Policy], Compiled] = compile,
    progress: Progress = silent,
) -> LawsProof:
    """A verdict about each law. ``made`` makes the machine, ``compiling`` what decides. Raises ``NoSolver``."""
    began = time.perf_counter()
    until = began + budget.seconds
    names = law_names(policy)
    progress("laws, for all numbers", 0, 0)
    unproved: dict[str, str] = {}
    kept: list[tuple[Fact, ...]] = []
    try:
        for encoding in shapes(policy, made):
            facts, broken = _proved(policy, encoding, made, until)
            kept.append(facts)
            unproved |= broken
        why = ""
    except OutOfTime as over:
        why = str(over)
    effort = Effort(sum(map(len, kept)), seconds=time.perf_counter() - began)
    verdicts = []
    for law in names:
        result = Verdict("law", law, "proved", LAWS[law], effort=effort, limits="all")
        if why or law in unproved:
            words = why or f"it may be that {unproved[law]}, but no run that shows it was found"
            result = replace(result, result="unknown", why=words)
        verdicts.append(result)
    if not why and unproved:
        found = _refuted(policy, set(unproved), budget, until, compiling, progress)
        named: dict[str, Verdict] = {**{verdict.name: verdict for verdict in verdicts}, **found}
        verdicts = [named[name] for name in names]
    return LawsProof(tuple(verdicts), () if why or unproved else tuple(kept))


def _proved(policy: Policy, encoding: Encoding, made: Made, until: float) -> tuple[tuple[Fact, ...], dict[str, str]]:
    """Facts that are kept, and the laws that they do not prove, each with what may be broken."""

    def among(world: World) -> Made:
        return lambda small: around(any_size(made(small), small), small, world)

    simple, together = guesses(samples(policy, among(FREE), among(_SIMPLE), until), encoding, until)
    broken: dict[str, str] = {}
    kept: tuple[Fact, ...] = ()
    for facts in (simple, [*simple, *together]):
        induction = Induction(encoding, facts, until)
        induction.keep()
        checks = encoding.laws.checks
        broken = {checks[index].law: checks[index].broken for index in induction.unproved()}
        kept = induction.kept()
        if not broken:
            break
    return kept, broken


def _refuted(
    policy: Policy,
    laws: set[str],
    budget: Budget,
    until: float,
    compiling: Callable[[Policy], Compiled],
    progress: Progress,
) -> dict[str, Verdict]:
    """Those of the laws that a run at some small limits breaks, with that run."""
    found: dict[str, Verdict] = {}
    for small in nearby(policy):
        left = until - time.perf_counter()
        if laws <= set(found) or left <= 0:
            break
        few = Budget(budget.states, left * _PLAYING, budget.open)
        for verdict in Prover(small, few, compiled=compiling(small), progress=progress).prove((), laws=True).verdicts:
            if verdict.name in laws and verdict.result == "refuted":
                numbers = ", ".join(f"{limit.id} {limit.max}" for limit in small.limits if limit.max is not None)
                shown = replace(verdict, why=f"{verdict.why}, with {numbers}".lstrip(", "), limits="all")
                found.setdefault(verdict.name, shown)
    return found


def law_names(policy: Policy) -> list[str]:
    """The laws that a run of this policy could break."""
    return [law for law in LAWS if any(check.law == law for check in laws_of(policy).checks)]


def recheck(encodings: Sequence[Encoding], facts: Sequence[Sequence[Fact]], until: float) -> str:
    """Do these facts prove all laws? Empty if they do, else why not. Raises ``OutOfTime`` and ``NoSolver``."""
    if len(encodings) != len(facts):
        return "it is about another number of shapes of this policy"
    for encoding, claimed in zip(encodings, facts, strict=True):
        unknown = next((name for fact in claimed for name, _ in fact.parts if name not in encoding.names), None)
        if unknown is not None:
            return f"it speaks of `{unknown}`, which this policy does not have"
        first = next((f for f in claimed if f.phase == Phase.NEW and f.of(encoding.initial) is not True), None)
        if first is not None:
            return f"what it says of the start is not so: {first.plain()}"
        wrong = Induction(encoding, claimed, until).holds()
        if wrong:
            return wrong
    return ""
