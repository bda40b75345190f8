"""Rounds that a run can never come to use up, because its calls are used up before: how many more they are is left out.

Between two rounds there is a call. Once more rounds are left than calls, the limit of rounds says nothing any more, and
two states that differ in nothing but how many more there are have the same future. Told apart, they would make a
search grow with the product of both limits wherever something spends a call without a round (a handoff does).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var
from engine.core.machine.machine import Grant, Machine, Refill, Spend
from engine.core.machine.monitors import Laws


@dataclass(frozen=True, slots=True)
class Surplus:
    """``rounds`` and ``counted``, what the laws count of it, are told apart up to ``more`` above ``calls``."""

    rounds: str
    counted: str
    calls: str
    more: int

    def left_out(self, after: dict[str, str]) -> Iterator[str]:
        """Lines of Python before the next state is made; ``after`` says what becomes of the variables, and is changed.

        What both have too much is taken from both, so that a fault in one of them shows as ever.
        """
        if self.calls not in after:
            return
        now = [after.get(name, name) for name in (self.rounds, self.counted) if name]
        least = now[0] if len(now) == 1 else f"min({', '.join(now)})"
        yield f"surplus = max(0, {least} - ({after[self.calls]}) - {self.more})"
        for name in filter(None, (self.rounds, self.counted)):
            after[name] = f"({after.get(name, name)}) - surplus"


def surplus_of(machine: Machine, laws: Laws) -> tuple[Surplus, ...]:
    """The limits of rounds that a limit of calls goes before, if nothing ever gives calls back."""
    ghosts = {ghost.name for ghost in laws.ghosts}
    calls = [p.fuel for p in laws.plans if p.resource == "llm_calls" and not _grants(machine, p.fuel)]
    found = []
    for plan in laws.plans:
        if plan.resource != "tool_iterations" or not calls or not _spent_by_rounds(machine, plan.fuel):
            continue
        counted = f"left_of_{plan.name}"
        counted = counted if counted in ghosts else ""
        largest = _largest(machine, laws, {plan.fuel, counted})
        if largest is not None:
            found.append(Surplus(plan.fuel, counted, calls[0], largest + 2))
    return tuple(found)


def _grants(machine: Machine, fuel: str) -> bool:
    updates = (u for rules in machine.rules.values() for rule in rules for u in rule.updates)
    return any(isinstance(u, Grant | Refill) and u.var == fuel for u in updates)


def _spent_by_rounds(machine: Machine, fuel: str) -> bool:
    """Nothing else takes of it, but for what was used before the run."""
    spending = (
        event
        for event, rules in machine.rules.items()
        if any(isinstance(u, Spend) and u.var == fuel for rule in rules for u in rule.updates)
    )
    return set(spending) <= {"round", "start"}


def _largest(machine: Machine, laws: Laws, names: set[str]) -> int | None:
    """The largest number that anybody compares them with; ``None`` if with something else."""
    terms = [rule.guard for rules in machine.rules.values() for rule in rules]
    terms += [term for check in laws.checks for term in (check.premise, check.demand)]
    terms += [case.guard for ghost in laws.ghosts for case in ghost.on]
    largest = 0
    for left, right in _compared(terms):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Var) and one.name in names:
                if not isinstance(other, Lit):
                    return None
                largest = max(largest, other.value)
    return largest


def _compared(terms: Iterable[Expr]) -> Iterator[tuple[Expr, Expr]]:
    for term in terms:
        match term:
            case Le(left, right) | Eq(left, right):
                yield left, right
            case Not(of):
                yield from _compared([of])
            case And(parts) | Or(parts):
                yield from _compared(parts)
            case Var() | Field() | Lit():
                pass
