"""Terms with some of their names known: constants put in, and what follows from them folded away."""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.machine.expr import FALSE, TRUE, And, Eq, Expr, Field, Le, Lit, Not, Or, Var, all_of, any_of


def specialise(expr: Expr, known: Mapping[str, int | str]) -> Expr:
    """The term where each known name is its integer, or the other name it goes by."""
    match expr:
        case Var(name) | Field(name):
            value = known.get(name, name)
            return Lit(value) if isinstance(value, int) else Var(value)
        case Le(left, right) | Eq(left, right):
            return _compared(expr, specialise(left, known), specialise(right, known))
        case Not(of):
            return negated(specialise(of, known))
        case And(parts):
            return all_of(*(specialise(part, known) for part in parts))
        case Or(parts):
            return any_of(*(specialise(part, known) for part in parts))
        case Lit():
            return expr


def _compared(expr: Le | Eq, left: Expr, right: Expr) -> Expr:
    if isinstance(left, Lit) and isinstance(right, Lit):
        holds = left.value <= right.value if isinstance(expr, Le) else left.value == right.value
        return TRUE if holds else FALSE
    return Le(left, right) if isinstance(expr, Le) else Eq(left, right)


def negated(expr: Expr) -> Expr:
    """True where ``expr`` is not."""
    if expr == TRUE:
        return FALSE
    if expr == FALSE:
        return TRUE
    return expr.of if isinstance(expr, Not) else Not(expr)
