"""The successors of a state as Python, generated: one function a phase, with every field of every event tried.

A state is the machine's variables without meters, then what ``step`` remembers beside them (``BESIDE``),
then the ghosts of the laws. Constants are folded in, and reactions that come out as
the same text are kept once: what they differ in cannot make a difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.machine.expr import (
    FALSE,
    TRUE,
    Eq,
    Expr,
    Field,
    Le,
    Lit,
    Not,
    Var,
    all_of,
    assume,
    renamed,
    to_python,
)
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
from engine.core.machine.plan import ENOUGH
from engine.verify.choices import Reaction, chains
from engine.verify.observe import Observation, observe
from engine.verify.surplus import Surplus

JUDGED = "judged_so_far"
"""How many calls of the round in hand have got their verdict; as many as there may be once that is over."""

HELD = "held_so_far"
"""How many calls of the round in hand wait for a person: only they are granted or withheld, and they do not end."""

FAILING = "failure_in_hand"
"""1 while nothing but ``failed`` can follow: ``step`` composes it with what has just been decided."""

BESIDE = (JUDGED, HELD, FAILING)

IMPOSSIBLE = "impossible"
"""Effect of a rule that is no reaction: it says what cannot come, so that a search does not go that way."""

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


def successors(machine: Machine, laws: Laws, max_open: int, surplus: Sequence[Surplus] = ()) -> Successors:
    """Generate and load. A round has at most ``max_open`` calls; what is in ``surplus`` is not told apart."""
    return Writer(machine, laws, max_open, surplus).write()


def names_of(machine: Machine, laws: Laws) -> tuple[str, ...]:
    """What a state's values are called, in order."""
    variables = tuple(v.name for v in machine.variables if v.sort is not Sort.METER)
    return (*variables, *BESIDE, *(g.name for g in laws.ghosts))


class Writer:
    """Writes them. What every notation of the same graph shares is in ``options``."""

    def __init__(self, machine: Machine, laws: Laws, max_open: int, surplus: Sequence[Surplus] = ()) -> None:
        self.machine, self.laws, self.max_open, self.surplus = machine, laws, max_open, surplus
        self.names = names_of(machine, laws)
        self.initials = {v.name: v.initial for v in machine.variables} | {g.name: g.initial for g in laws.ghosts}
        self.branches: list[Branch] = []
        self.sampled: list[str] = []
        self.asks = any(1 in field.values for field in machine.events["tool"].fields if field.name == "asks")

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

    def options(self, kind: EventKind, phase: int) -> Iterator[list[Reaction]]:
        """The ways in which the event can come in this phase, each with its rules: the first that may fire does."""
        distinct: dict[tuple[tuple[str, Expr, tuple[str, ...]], ...], list[Reaction]] = {}
        for tried in self._tried(kind):
            for chain in self._chains(kind, phase, tried):
                distinct.setdefault(tuple((r.rule.id, r.guard, r.lines) for r in chain), chain)
        yield from distinct.values()

    def _event(self, kind: EventKind, phase: int) -> Iterator[str]:
        chains, may = list(self.options(kind, phase)), self.comes(kind, phase)
        if may:
            yield f"    if {may}:"
        indent = "        " if may else "    "
        for chain in chains:
            for position, reaction in enumerate(chain):
                yield from self._branch(kind, reaction, first=position == 0, indent=indent)

    def comes(self, kind: EventKind, phase: int) -> str:
        """When the event can come, as Python; empty for always."""
        when = self.when(kind, phase)
        return "" if when == TRUE else to_python(when)

    def when(self, kind: EventKind, phase: int) -> Expr:
        """When the event can come in this phase."""
        return all_of(self._may(kind, phase), assume(kind.when, {"phase": phase}))

    def _may(self, kind: EventKind, phase: int) -> Expr:
        """When the event can come, as far as the machine's own variables do not say."""
        may = {
            "tool": Not(Le(Lit(self.max_open), Var(JUDGED))),
            "judged": Not(Le(Var(JUDGED), Lit(0))),
            "granted": Not(Le(Var(HELD), Lit(0))),
            "withheld": Not(Le(Var(HELD), Lit(0))),
        }
        if self.asks:
            may |= dict.fromkeys(("tool_end", "tool_ends", "unstarted"), Not(Le(Var("open"), Var(HELD))))
        if phase == Phase.CALLING and kind.name != "failed":
            return Eq(Var(FAILING), Lit(0))
        return may.get(kind.name, TRUE)

    def _branch(self, kind: EventKind, reaction: Reaction, *, first: bool, indent: str) -> Iterator[str]:
        number = len(self.branches)
        self.branches.append(Branch(kind.name, reaction.fields, reaction.rule))
        if reaction.guard == TRUE:
            yield f"{indent}{'if True' if first else 'else'}:"
        else:
            yield f"{indent}{'if' if first else 'elif'} {to_python(reaction.guard)}:"
        for line in reaction.lines:
            yield f"{indent}    {line.replace('#', str(number))}"

    def _tried(self, kind: EventKind) -> Iterator[dict[str, Sequence[int]]]:
        """The values of every field, the mildest first: nothing spent, no flag set. One failure ladder at a time."""
        ladders = next((f.values for f in kind.fields if f.name == "ladder"), None)
        for ladder in ladders or (None,):
            yield self._tried_with(kind, ladder)

    def _tried_with(self, kind: EventKind, ladder: int | None) -> dict[str, Sequence[int]]:
        """With one failure ladder: what another one could do is not looked at."""
        values: dict[str, Sequence[int]] = {}
        for field in kind.fields:
            tried = field.values
            if field.name == "ladder" and ladder is not None:
                tried = (ladder,)
            elif field.name == "start" and not ladder:
                tried = (0,)
            elif field.group == "ladders" and field.name.startswith("failure_"):
                tried = tried if field.name.startswith(f"failure_{ladder}_") else (0,)
            if len(tried) > _SAMPLE:
                tried = [*tried[:3], tried[len(tried) // 2], *tried[-3:]]
                self.sampled.append(field.name)
            values[field.name] = tried[::-1] if ENOUGH in tried and field.group == "amounts" else tried
        return values

    def _chains(self, kind: EventKind, phase: int, tried: Mapping[str, Sequence[int]]) -> list[list[Reaction]]:
        """The rules that can fire in this phase, for each choice of the fields that makes a difference."""

        def react(rule: Rule, fields: Mapping[str, int]) -> tuple[str, ...]:
            return tuple(self._reaction(kind, rule, fields))

        return chains(self.machine.rules[kind.name], phase, tried, react)

    def _reaction(self, kind: EventKind, rule: Rule, fields: Mapping[str, int]) -> Iterator[str]:
        """Count it, let the laws look at it, and hand on the state it leads to."""
        if rule.effect.kind == IMPOSSIBLE:
            yield "pass"
            return
        if kind.name == "tool" and rule.effect.kind == "suspend":
            # ``step`` gives the judging up: that the round would crowd a limit is a field of ``round``.
            yield "fired[#] += 1"
            return
        seen = observe(self.laws.plans, kind.name, fields, rule.effect)
        watched = _Watched(self.laws, seen)
        after = {u.var: _python(u, u.var, fields) for u in rule.updates if not isinstance(u, Count)} | watched.after()
        judged = self.judged(kind, rule)
        if judged:
            after[JUDGED] = judged
        after |= beside(kind, rule)
        yield "fired[#] += 1"
        yield from watched.prepared
        yield from watched.held
        for word, (index, bad) in zip(itertools.chain(("if",), itertools.repeat("elif")), watched.broken, strict=False):
            yield f"{word} {to_python(bad)}: broke({index}, s, #)"
        indent = "    " if watched.broken else ""
        if watched.broken:
            yield "else:"
        if kind.name == "call":
            for surplus in self.surplus:
                yield from (f"{indent}{line}" for line in surplus.left_out(after))
        yield f"{indent}n = ({', '.join(after.get(name, name) for name in self.names)},)"
        yield f"{indent}if n not in seen: seen[n] = (s, #); push(n)"

    def judged(self, kind: EventKind, rule: Rule) -> str:
        if kind.name == "tool" and rule.effect.kind != "again":
            return f"{JUDGED} + 1"
        if kind.name in ("tool_end", "unstarted") and rule.effect.kind == "again":
            return str(self.max_open)
        return "0" if kind.name in ("round", "judged") else ""


def beside(kind: EventKind, rule: Rule) -> dict[str, str]:
    """What becomes of the calls that are held, and of a failure that is being decided."""
    after = {}
    if kind.name == "tool" and rule.effect.kind == "ask":
        after[HELD] = f"{HELD} + 1"
    elif kind.name in ("granted", "withheld"):
        after[HELD] = f"{HELD} - 1"
    elif kind.name == "round":
        after[HELD] = "0"
    if rule.effect.kind == "failed" or (kind.name == "resolved" and rule.effect.ladder):
        after[FAILING] = "1"
    elif kind.name == "failed":
        after[FAILING] = "0"
    return after


class _Watched:
    """The laws looking at the observations of one reaction, as lines of Python.

    ``current`` is the name under which each ghost's value goes at that point.
    """

    def __init__(self, laws: Laws, seen: list[Observation]) -> None:
        self.laws = laws
        self.current = {g.name: g.name for g in laws.ghosts}
        self.prepared: list[str] = []
        self.held: list[str] = []
        self.broken: list[tuple[int, Expr]] = []
        for number, (kind, fields) in enumerate(seen):
            self._check(kind, fields)
            self._move(kind, fields, f"_{number}")

    def after(self) -> dict[str, str]:
        """The ghosts that have moved, each by the name of its new value."""
        return {name: now for name, now in self.current.items() if now != name}

    def _check(self, kind: str, fields: dict[str, int]) -> None:
        for index, check in enumerate(self.laws.checks):
            if check.seen != kind:
                continue
            premise = self._as_seen(check.premise, fields)
            if premise == FALSE:
                continue
            always = premise == TRUE
            self.held.append(f"held[{index}] = 1" if always else f"if {to_python(premise)}: held[{index}] = 1")
            bad = all_of(premise, self._as_seen(Not(check.demand), fields))
            if bad != FALSE:
                self.broken.append((index, bad))

    def _move(self, kind: str, fields: dict[str, int], mark: str) -> None:
        """All ghosts read the old values, so new names come into force together."""
        moved: dict[str, str] = {}
        for ghost in self.laws.ghosts:
            now = self.current[ghost.name]
            text = now
            for case in reversed([case for case in ghost.on if case.seen == kind]):
                guard = self._as_seen(case.guard, fields)
                if guard == TRUE:
                    text = _python(case.update, now, fields)
                elif guard != FALSE:
                    text = f"{_python(case.update, now, fields)} if {to_python(guard)} else {text}"
            if text != now:
                moved[ghost.name] = ghost.name + mark
                self.prepared.append(f"{ghost.name}{mark} = {text}")
        self.current |= moved

    def _as_seen(self, expr: Expr, fields: dict[str, int]) -> Expr:
        return renamed(assume(expr, fields), self.current)


def _python(update: Update, current: str, fields: Mapping[str, int]) -> str:
    match update:
        case Set(_, to) | Refill(_, to):
            return str(to)
        case Grant(_, by):
            return f"{current} + {fields[by.name] if isinstance(by, Field) else by}"
        case Spend(_, Lit(1)):
            return f"({current} and {current} - 1)"
        case Spend(_, by):
            return f"max(0, {current} - {fields[by.name] if isinstance(by, Field) else by.value})"
        case Count():
            return current
