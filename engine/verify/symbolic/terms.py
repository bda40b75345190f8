"""Terms as SMT-LIB text, folded while they are made. What is known is a Python number or truth, the rest a string.

Text is made faster than a solver's own objects, is the same for every solver, and can be read. No solver is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var

Term = int | str
"""An integer."""

Truth = bool | str
"""A truth value."""


def symbol(name: str) -> str:
    """A name as SMT-LIB writes any name."""
    return f"|{name}|"


def number(value: Term) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value >= 0 else f"(- {-int(value)})"


def truth(value: Truth) -> str:
    return value if isinstance(value, str) else str(value).lower()


def le(left: Term, right: Term) -> Truth:
    if isinstance(left, int) and isinstance(right, int):
        return left <= right
    return True if left == right else f"(<= {number(left)} {number(right)})"


def eq(left: Term, right: Term) -> Truth:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return True if left == right else f"(= {number(left)} {number(right)})"


def no(of: Truth) -> Truth:
    if isinstance(of, bool):
        return not of
    return of[5:-1] if of.startswith("(not ") else f"(not {of})"


def every(parts: Iterable[Truth]) -> Truth:
    kept: dict[str, None] = {}
    for part in parts:
        if part is False:
            return False
        if part is not True:
            kept[str(part)] = None
    return True if not kept else next(iter(kept)) if len(kept) == 1 else f"(and {' '.join(kept)})"


def some(parts: Iterable[Truth]) -> Truth:
    kept: dict[str, None] = {}
    for part in parts:
        if part is True:
            return True
        if part is not False:
            kept[str(part)] = None
    return False if not kept else next(iter(kept)) if len(kept) == 1 else f"(or {' '.join(kept)})"


def plus(left: Term, right: Term) -> Term:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if left == 0 or right == 0:
        return right if left == 0 else left
    return f"(+ {number(left)} {number(right)})"


def minus(left: Term, right: Term) -> Term:
    if isinstance(left, int) and isinstance(right, int):
        return left - right
    return left if right == 0 else 0 if left == right else f"(- {number(left)} {number(right)})"


def either(when: Truth, then: Term, otherwise: Term) -> Term:
    if isinstance(when, bool):
        return then if when else otherwise
    return then if then == otherwise else f"(ite {when} {number(then)} {number(otherwise)})"


class Names:
    """What the variables of a term stand for, what its fields do, and what its numbers mean."""

    def __init__(
        self, variables: Mapping[str, Term], fields: Mapping[str, Term], numbers: Mapping[int, Term] | None = None
    ) -> None:
        self.variables, self.fields, self.numbers = variables, fields, numbers or {}

    def term(self, expr: Expr) -> Term:
        """An expression that is a number."""
        match expr:
            case Lit(value):
                return self.meant(value)
            case Var(name):
                return self.variables[name]
            case Field(name):
                return self.fields[name]
            case _:
                return either(self.truth(expr), 1, 0)

    def meant(self, value: int) -> Term:
        """A number of the machine: itself, or the number of the policy that it stands for."""
        return self.numbers.get(value, value)

    def truth(self, expr: Expr) -> Truth:
        """An expression that is so or not."""
        match expr:
            case Le(left, right):
                return le(self.term(left), self.term(right))
            case Eq(left, right):
                return eq(self.term(left), self.term(right))
            case Not(of):
                return no(self.truth(of))
            case And(parts):
                return every(self.truth(part) for part in parts)
            case Or(parts):
                return some(self.truth(part) for part in parts)
            case Lit() | Var() | Field():
                return no(eq(self.term(expr), 0))
