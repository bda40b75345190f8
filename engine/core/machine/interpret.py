"""The reference: what a machine does with an event, as plainly as it can be said.

Slow and short on purpose. The generated code is tested against it on every step, and whoever wants to know why a rule
fired watches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from engine.core.machine.expr import Field, evaluate
from engine.core.machine.machine import Count, Grant, Machine, Refill, Rule, Set, Spend, Update
from engine.core.machine.to_python import parameters


class Reaction(NamedTuple):
    """One event of the machine: its variables and the event's fields by name, and the rule that fired."""

    event: str
    variables: dict[str, int]
    fields: dict[str, int]
    rule: Rule


Watch = Callable[[Reaction], None]


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


def functions(machine: Machine, watch: Watch | None = None) -> SimpleNamespace:
    """The machine's functions with the calling convention of the generated ones; ``watch`` is told of each reaction."""

    def function(event: str) -> Callable[..., tuple[tuple[int, ...], Rule]]:
        kind = machine.events[event]
        names = parameters(kind)

        def call(values: tuple[int, ...], *arguments: Any) -> tuple[tuple[int, ...], Rule]:
            fields: dict[str, int] = {}
            for name, argument in zip(names, arguments, strict=True):
                if name in kind.groups:
                    members = [f.name for f in kind.fields if f.group == name]
                    fields.update(zip(members, argument, strict=True))
                else:
                    fields[name] = int(argument)
            after, rule = react(machine, event, values, fields)
            if watch is not None:
                variables = dict(zip((v.name for v in machine.variables), values, strict=True))
                watch(Reaction(event, variables, fields, rule))
            return after, rule

        return call

    return SimpleNamespace(**{event: function(event) for event in machine.rules})
