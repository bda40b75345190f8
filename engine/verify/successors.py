"""The successors of a state as Python, generated: one function a phase, with every field of every event tried.

A state is the machine's variables without meters, then how many calls of the round in hand have
been judged, then the ghosts of the laws. Constants are folded in, and reactions that come out as
the same text are kept once: what they differ in cannot make a difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core.machine.expr import FALSE, TRUE, Expr, Field, Lit, all_of, to_python
from engine.core.machine.laws import Laws
from engine.core.machine.machine import (
    Count,
    EventKind,
    Grant,
    Machine,
    Phase,
    Refill,
    Rule,
    Set,
    Sort,
    Spend,
    Update,
)
from engine.verify.observe import Observation, observe
from engine.verify.specialise import negated, specialise

JUDGED = "judged_so_far"
"""How many calls of the round in hand have got their verdict; as many as there may be once that is over."""

_SAMPLE = 64
"""A field with more values than this is tried at both ends and in the middle only."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One way in which a rule can fire: with these fields (and every other choice of them that comes to the same)."""

    event: str
    fields: dict[str, int]
    rule: Rule


@dataclass(frozen=True, slots=True)
class Successors:
    """``functions`` by phase; ``sampled`` names fields of which not every value is tried."""

    functions: dict[int, Callable[..., None]]
    branches: tuple[Branch, ...]
    initial: tuple[int, ...]
    source: str
    sampled: tuple[str, ...]


def successors(machine: Machine, laws: Laws, max_open: int) -> Successors:
    """Generate and load. A round has at most ``max_open`` calls."""
    return _Writer(machine, laws, max_open).write()


def names_of(machine: Machine, laws: Laws) -> tuple[str, ...]:
    """What a state's values are called, in order."""
    variables = tuple(v.name for v in machine.variables if v.sort is not Sort.METER)
    return (*variables, JUDGED, *(g.name for g in laws.ghosts))


@dataclass(frozen=True, slots=True)
class _Reaction:
    """A branch as text, where ``#`` stands for its number."""

    fields: dict[str, int]
    rule: Rule
    guard: Expr
    lines: tuple[str, ...]


class _Writer:
    def __init__(self, machine: Machine, laws: Laws, max_open: int) -> None:
        self.machine, self.laws, self.max_open = machine, laws, max_open
        self.names = names_of(machine, laws)
        self.initials = {v.name: v.initial for v in machine.variables} | {g.name: g.initial for g in laws.ghosts}
        self.branches: list[Branch] = []
        self.sampled: list[str] = []

    def write(self) -> Successors:
        text = "\n\n".join(self._function(phase) for phase in range(len(Phase.NAMES)))
        scope: dict[str, Any] = {}
        exec(compile(text, "<successors>", "exec"), scope)
        functions = {p: scope[f"at_{name}"] for p, name in enumerate(Phase.NAMES) if p != Phase.ENDED}
        initial = tuple(self.initials.get(name, 0) for name in self.names)
        return Successors(functions, tuple(self.branches), initial, text, tuple(self.sampled))

    def _function(self, phase: int) -> str:
        head = [f"def at_{Phase.NAMES[phase]}(s, seen, push, fired, held, broke):"]
        head.append(f"    {', '.join(self.names)}, = s")
        body = [
            line for kind in self.machine.events.values() if phase in kind.phases for line in self._event(kind, phase)
        ]
        return "\n".join([*head, *body])

    def _event(self, kind: EventKind, phase: int) -> Iterator[str]:
        chains: dict[tuple[tuple[str, Expr, tuple[str, ...]], ...], list[_Reaction]] = {}
        for fields in self._choices(kind):
            chain = self._chain(kind, phase, fields)
            chains.setdefault(tuple((r.rule.id, r.guard, r.lines) for r in chain), chain)
        may = {"tool": f"{JUDGED} < {self.max_open}", "judged": f"{JUDGED} > 0"}.get(kind.name)
        if may:
            yield f"    if {may}:"
        indent = "        " if may else "    "
        for chain in chains.values():
            for position, reaction in enumerate(chain):
                yield from self._branch(kind, reaction, first=position == 0, indent=indent)

    def _branch(self, kind: EventKind, reaction: _Reaction, *, first: bool, indent: str) -> Iterator[str]:
        number = len(self.branches)
        self.branches.append(Branch(kind.name, reaction.fields, reaction.rule))
        if reaction.guard == TRUE:
            yield f"{indent}{'if True' if first else 'else'}:"
        else:
            yield f"{indent}{'if' if first else 'elif'} {to_python(reaction.guard)}:"
        for line in reaction.lines:
            yield f"{indent}    {line.replace('#', str(number))}"

    def _choices(self, kind: EventKind) -> Iterator[dict[str, int]]:
        """Every choice of the fields, the mildest first: nothing spent, no flag set."""
        names, values = [], []
        for field in kind.fields:
            tried = list(field.values)
            if len(tried) > _SAMPLE:
                tried = [*tried[:3], tried[len(tried) // 2], *tried[-3:]]
                self.sampled.append(field.name)
            names.append(field.name)
            values.append(tried[::-1] if field.group == "amounts" else tried)
        for choice in itertools.product(*values):
            yield dict(zip(names, choice, strict=True))

    def _chain(self, kind: EventKind, phase: int, fields: dict[str, int]) -> list[_Reaction]:
        """The rules that can fire for these fields in this phase, the last one always."""
        chain: list[_Reaction] = []
        known = {"phase": phase, **fields}
        for rule in self.machine.rules[kind.name]:
            guard = specialise(rule.guard, known)
            if guard != FALSE:
                chain.append(_Reaction(fields, rule, guard, tuple(self._reaction(kind, rule, fields))))
            if guard == TRUE:
                break
        return chain

    def _reaction(self, kind: EventKind, rule: Rule, fields: dict[str, int]) -> Iterator[str]:
        """Count it, let the laws look at it, and hand on the state it leads to."""
        seen = observe(self.laws.plans, kind.name, fields, rule.effect)
        ghosts, prepared, held, broken = self._watched(seen)
        after = {u.var: _python(u, u.var, fields) for u in rule.updates if not isinstance(u, Count)} | ghosts
        judged = self._judged(kind, rule)
        if judged:
            after[JUDGED] = judged
        yield "fired[#] += 1"
        yield from prepared
        yield from held
        for word, (index, bad) in zip(itertools.chain(("if",), itertools.repeat("elif")), broken, strict=False):
            yield f"{word} {to_python(bad)}: broke({index}, s, #)"
        indent = "    " if broken else ""
        if broken:
            yield "else:"
        yield f"{indent}n = ({', '.join(after.get(name, name) for name in self.names)},)"
        yield f"{indent}if n not in seen: seen[n] = (s, #); push(n)"

    def _judged(self, kind: EventKind, rule: Rule) -> str:
        if kind.name == "tool" and rule.effect.kind != "again":
            return f"{JUDGED} + 1"
        if kind.name == "tool_end" and rule.effect.kind == "again":
            return str(self.max_open)
        return "0" if kind.name in ("round", "judged") else ""

    def _watched(self, seen: list[Observation]) -> tuple[dict[str, str], list[str], list[str], list[tuple[int, Expr]]]:
        """The ghosts afterwards, the lines that compute them, premises to record, and what would be broken."""
        known: dict[str, int | str] = {g.name: g.name for g in self.laws.ghosts}
        prepared: list[str] = []
        held: list[str] = []
        broken: list[tuple[int, Expr]] = []
        for number, (kind, fields) in enumerate(seen):
            now: Mapping[str, int | str] = {**known, **fields}
            for index, check in enumerate(self.laws.checks):
                if check.seen != kind:
                    continue
                premise = specialise(check.premise, now)
                if premise == FALSE:
                    continue
                held.append(f"held[{index}] = 1" if premise == TRUE else f"if {to_python(premise)}: held[{index}] = 1")
                bad = all_of(premise, negated(specialise(check.demand, now)))
                if bad != FALSE:
                    broken.append((index, bad))
            for name, text in self._moved(kind, fields, now):
                fresh = f"{name}_{number}"
                prepared.append(f"{fresh} = {text}")
                known[name] = fresh
        after = {name: str(value) for name, value in known.items() if value != name}
        return after, prepared, held, broken

    def _moved(self, kind: str, fields: dict[str, int], now: Mapping[str, int | str]) -> Iterator[tuple[str, str]]:
        for ghost in self.laws.ghosts:
            current = str(now[ghost.name])
            text = current
            for case in reversed([case for case in ghost.on if case.seen == kind]):
                guard = specialise(case.guard, now)
                if guard == TRUE:
                    text = _python(case.update, current, fields)
                elif guard != FALSE:
                    text = f"{_python(case.update, current, fields)} if {to_python(guard)} else {text}"
            if text != current:
                yield ghost.name, text


def _python(update: Update, current: str, fields: Mapping[str, int]) -> str:
    match update:
        case Set(_, to) | Refill(_, to):
            return str(to)
        case Grant(_, by):
            return f"{current} + {by}"
        case Spend(_, Lit(1)):
            return f"({current} and {current} - 1)"
        case Spend(_, by):
            return f"max(0, {current} - {fields[by.name] if isinstance(by, Field) else by.value})"
        case Count():
            return current
