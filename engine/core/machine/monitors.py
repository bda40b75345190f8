"""Monitors: ghost variables and checks over what an outsider sees of a run, and how they look at one observation.

They know no policy and no machine: ``laws`` and ``failure_laws`` say what is watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.core.machine.expr import FALSE, TRUE, Eq, Expr, Field, Le, Lit, Not, Var, evaluate
from engine.core.machine.machine import Grant, Refill, Set, Spend, Update
from engine.core.machine.plan import Plan


@dataclass(frozen=True, slots=True)
class On:
    """When ``seen`` is observed and ``guard`` holds, the ghost is updated; the first that applies counts."""

    seen: str
    update: Update
    guard: Expr = TRUE


@dataclass(frozen=True, slots=True)
class Ghost:
    """A variable of the specification. All ghosts are updated together and read the old values."""

    name: str
    initial: int
    on: tuple[On, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """When ``seen`` is observed and ``premise`` holds, ``demand`` must hold too; ``broken`` says what it is if not."""

    law: str
    seen: str
    broken: str
    demand: Expr
    premise: Expr = TRUE

    @property
    def forbids(self) -> bool:
        """Its premise itself must never hold."""
        return self.demand == FALSE


@dataclass(frozen=True, slots=True)
class Laws:
    """Ghosts and the checks that read them. ``plans``: the limits by index."""

    ghosts: tuple[Ghost, ...]
    checks: tuple[Check, ...]
    plans: tuple[Plan, ...]

    @property
    def initial(self) -> tuple[int, ...]:
        """The ghosts before anything was seen."""
        return tuple(g.initial for g in self.ghosts)


def watch(
    laws: Laws, ghosts: tuple[int, ...], seen: str, fields: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The ghosts after an observation, which checks it broke, and which premises held (both by index)."""
    values = dict(zip((g.name for g in laws.ghosts), ghosts, strict=True))
    held = [i for i, c in enumerate(laws.checks) if c.seen == seen and evaluate(c.premise, values, fields)]
    broken = [i for i in held if not evaluate(laws.checks[i].demand, values, fields)]
    after = tuple(_after(g, values, seen, fields) for g in laws.ghosts)
    return after, tuple(broken), tuple(held)


def _after(ghost: Ghost, values: Mapping[str, int], seen: str, fields: Mapping[str, int]) -> int:
    old = values[ghost.name]
    for case in ghost.on:
        if case.seen == seen and evaluate(case.guard, values, fields):
            return _updated(old, case.update, fields)
    return old


def _updated(old: int, update: Update, fields: Mapping[str, int]) -> int:
    match update:
        case Set(_, to) | Refill(_, to):
            return to
        case Spend(_, by):
            return max(0, old - (fields[by.name] if isinstance(by, Field) else by.value))
        case Grant(_, by):
            return old + (fields[by.name] if isinstance(by, Field) else by)
        case _:
            raise TypeError(f"a ghost cannot have {update}")


def holds(name: str, value: int) -> Expr:
    return Eq(Var(name), Lit(value))


def seen_as(name: str, value: int) -> Expr:
    return Eq(Field(name), Lit(value))


def none(name: str) -> Expr:
    return Le(Var(name), Lit(0))


def more(name: str) -> Expr:
    return Not(none(name))
