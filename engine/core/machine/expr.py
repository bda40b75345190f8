"""Terms of the machine: integers, variables, event fields, comparisons, and the usual connectives.

Closed, total, without strings, division or multiplication, so that every term can be evaluated,
printed as Python, explored and proved about. Truth is 1, falsehood 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lit:
    """An integer constant."""

    value: int


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of the machine."""

    name: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the event at hand."""

    name: str


@dataclass(frozen=True, slots=True)
class Le:
    """``left <= right``."""

    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Eq:
    """``left == right``."""

    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Not:
    """True where ``of`` is not."""

    of: Expr


@dataclass(frozen=True, slots=True)
class And:
    """True where every part is; so also when there are none."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True where some part is; so never when there are none."""

    parts: tuple[Expr, ...]


Expr = Lit | Var | Field | Le | Eq | Not | And | Or

TRUE = And(())
FALSE = Or(())


def all_of(*parts: Expr) -> Expr:
    """The conjunction, simplified: constants folded, nested conjunctions flattened."""
    flat: list[Expr] = []
    for part in parts:
        if part == FALSE:
            return FALSE
        flat.extend(part.parts if isinstance(part, And) else (part,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def any_of(*parts: Expr) -> Expr:
    """The disjunction, simplified in the same way."""
    flat: list[Expr] = []
    for part in parts:
        if part == TRUE:
            return TRUE
        flat.extend(part.parts if isinstance(part, Or) else (part,))
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def assume(expr: Expr, known: Mapping[str, int]) -> Expr:
    """The term with these variables and fields replaced by constants, and simplified."""
    match expr:
        case Var(name) | Field(name):
            return Lit(known[name]) if name in known else expr
        case Le(left, right):
            return _compared(Le(assume(left, known), assume(right, known)))
        case Eq(left, right):
            return _compared(Eq(assume(left, known), assume(right, known)))
        case Not(of):
            inner = assume(of, known)
            return FALSE if inner == TRUE else TRUE if inner == FALSE else Not(inner)
        case And(parts):
            return all_of(*(assume(p, known) for p in parts))
        case Or(parts):
            return any_of(*(assume(p, known) for p in parts))
        case Lit():
            return expr


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The term with its variables called otherwise; those that ``names`` does not have stay."""
    match expr:
        case Var(name):
            return Var(names.get(name, name))
        case Le(left, right):
            return Le(renamed(left, names), renamed(right, names))
        case Eq(left, right):
            return Eq(renamed(left, names), renamed(right, names))
        case Not(of):
            return Not(renamed(of, names))
        case And(parts):
            return And(tuple(renamed(part, names) for part in parts))
        case Or(parts):
            return Or(tuple(renamed(part, names) for part in parts))
        case Field() | Lit():
            return expr


def _compared(expr: Le | Eq) -> Expr:
    if isinstance(expr.left, Lit) and isinstance(expr.right, Lit):
        return TRUE if evaluate(expr, {}, {}) else FALSE
    return expr


def evaluate(expr: Expr, variables: Mapping[str, int], fields: Mapping[str, int]) -> int:
    """The value of a term; a ``KeyError`` is a mistake in the machine, never in its input."""
    match expr:
        case Lit(value):
            return value
        case Var(name):
            return variables[name]
        case Field(name):
            return fields[name]
        case Le(left, right):
            return int(evaluate(left, variables, fields) <= evaluate(right, variables, fields))
        case Eq(left, right):
            return int(evaluate(left, variables, fields) == evaluate(right, variables, fields))
        case Not(of):
            return int(not evaluate(of, variables, fields))
        case And(parts):
            return int(all(evaluate(p, variables, fields) for p in parts))
        case Or(parts):
            return int(any(evaluate(p, variables, fields) for p in parts))


def names(expr: Expr) -> Iterator[str]:
    """The variables and fields a term reads."""
    match expr:
        case Var(name) | Field(name):
            yield name
        case Le(left, right) | Eq(left, right):
            yield from names(left)
            yield from names(right)
        case Not(of):
            yield from names(of)
        case And(parts) | Or(parts):
            for part in parts:
                yield from names(part)
        case Lit():
            pass


def to_python(expr: Expr) -> str:
    """The term as a Python expression over names of its variables and fields."""
    match expr:
        case Lit(value):
            return str(value)
        case Var(name) | Field(name):
            return name
        case Le(left, right):
            return f"{to_python(left)} <= {to_python(right)}"
        case Eq(left, right):
            return f"{to_python(left)} == {to_python(right)}"
        case Not(Le(left, right)):
            return f"{to_python(left)} > {to_python(right)}"
        case Not(Eq(left, right)):
            return f"{to_python(left)} != {to_python(right)}"
        case Not(of):
            inner = to_python(of)
            return f"not {inner}" if isinstance(of, Var | Field) else f"not ({inner})"
        case And(parts):
            return " and ".join(_operand(p) for p in parts) or "True"
        case Or(parts):
            return " or ".join(_operand(p) for p in parts) or "False"


def _operand(expr: Expr) -> str:
    return f"({to_python(expr)})" if isinstance(expr, And | Or) else to_python(expr)
