"""The reference: what a machine does with an event, as plainly as it can be said.

Slow and short on purpose. The generated code is tested against it on every step.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.core.machine.expr import Field, evaluate
from engine.core.machine.machine import Count, Grant, Machine, Refill, Rule, Set, Spend, Update


def react(
    machine: Machine, event: str, values: tuple[int, ...], fields: Mapping[str, int]
) -> tuple[tuple[int, ...], Rule]:
    """The machine's next values and the rule that fired."""
    variables = dict(zip((v.name for v in machine.variables), values, strict=True))
    rule = next(r for r in machine.rules[event] if evaluate(r.guard, variables, fields))
    after = dict(variables)
    for update in rule.updates:
        after[update.var] = _updated(update, variables, fields)
    return tuple(after.values()), rule


def _updated(update: Update, variables: Mapping[str, int], fields: Mapping[str, int]) -> int:
    old = variables[update.var]
    match update:
        case Set(_, to) | Refill(_, to):
            return to
        case Spend(_, by):
            return max(0, old - (fields[by.name] if isinstance(by, Field) else by.value))
        case Grant(_, by):
            return old + (fields[by.name] if isinstance(by, Field) else by)
        case Count(_, by):
            return old + by
