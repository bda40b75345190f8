"""Why a rule did not fire: the parts of its guard that do not hold. Knows terms, and nothing of what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var, evaluate
from engine.core.machine.interpret import Reaction
from engine.core.machine.machine import Machine, Rule

Atom = Le | Eq | Var | Field | Lit
"""A term without connectives in it."""


class Passed(NamedTuple):
    """A rule that was looked at before the one that fired; ``atoms`` are what kept it from firing."""

    rule: Rule
    atoms: tuple[Atom, ...]


def passed(machine: Machine, reaction: Reaction) -> tuple[Passed, ...]:
    """The rules of the event before the one that fired, in order."""
    rules = machine.rules[reaction.event]
    before = rules[: rules.index(reaction.rule)]
    return tuple(Passed(rule, decisive(rule.guard, reaction.variables, reaction.fields)) for rule in before)


def decisive(expr: Expr, variables: Mapping[str, int], fields: Mapping[str, int]) -> tuple[Atom, ...]:
    """The atoms that make the term what it is, each once: of a conjunction that does not hold those parts that do not,
    of one that holds all; of a disjunction the other way round. A constant has none."""
    match expr:
        case Not(of):
            found = decisive(of, variables, fields)
        case And(parts) | Or(parts):
            value = evaluate(expr, variables, fields)
            deciding = [p for p in parts if bool(evaluate(p, variables, fields)) == bool(value)]
            found = tuple(atom for part in deciding for atom in decisive(part, variables, fields))
        case Lit():
            found = ()
        case _:
            found = (expr,)
    return tuple(dict.fromkeys(found))
