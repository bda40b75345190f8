"""``Machine`` to Python: one function an event, specialised to the policy, meant to be read.

Each function takes the machine's values and the event's fields, and returns the next values
and the rule that fired. Constants are folded, rules that can never fire are left out, and
each branch bears the policy's line. ``policy explain --code`` prints exactly this text.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

from engine.core.machine.expr import FALSE, TRUE, Field, Lit, names, to_python
from engine.core.machine.machine import Count, EventKind, Grant, Machine, Phase, Refill, Rule, Set, Spend, Update

React = Callable[..., tuple[tuple[int, ...], Rule]]


def source(machine: Machine) -> str:
    """The generated module as text."""
    head = "# One function an event. v: the machine's values. Result: its next values and the rule that fired.\n"
    return head + "\n\n".join(_function(machine, machine.events[name], rules) for name, rules in machine.rules.items())


class Functions:
    """The generated functions, by event name. Each is compiled when it is first asked for: most runs need few.

    Tracebacks point into their text as ``<policy NAME: EVENT>``.
    """

    def __init__(self, machine: Machine, name: str) -> None:
        self._machine = machine
        self._name = name

    def __getattr__(self, event: str) -> React:
        if event.startswith("_") or event not in self._machine.rules:
            raise AttributeError(event)
        rules = self._machine.rules[event]
        text, filename = _function(self._machine, self._machine.events[event], rules), f"<policy {self._name}: {event}>"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        scope: dict[str, Any] = {name.upper(): value for value, name in enumerate(Phase.NAMES)}
        scope |= {_constant(rule): rule for rule in rules}
        exec(compile(text, filename, "exec"), scope)
        function: React = scope[event]
        setattr(self, event, function)  # from now on an ordinary attribute
        return function


def parameters(kind: EventKind) -> tuple[str, ...]:
    """How a generated function wants the fields of an event: groups first, then single fields."""
    return (*kind.groups, *(f.name for f in kind.fields if not f.group))


def arguments(kind: EventKind, fields: dict[str, int]) -> tuple[Any, ...]:
    """The values of an event's fields in the order of ``parameters``."""
    grouped = [tuple(fields[f.name] for f in kind.fields if f.group == group) for group in kind.groups]
    return (*grouped, *(fields[f.name] for f in kind.fields if not f.group))


def _constant(rule: Rule) -> str:
    return rule.id.replace(".", "_").upper()


def _function(machine: Machine, kind: EventKind, rules: tuple[Rule, ...]) -> str:
    kept = live(rules)
    read = {name for rule in kept for name in names(rule.guard)}
    changes = any(rule.updates for rule in kept)
    lines = [f"def {kind.name}({', '.join(('v', *parameters(kind)))}):", f"    # {kind.doc}"]
    variables = ", ".join(v.name for v in machine.variables)
    if changes or any(v.name in read for v in machine.variables):
        lines.append(f"    {variables} = v")
    lines += [line for group in kind.groups for line in _unpack(kind, group, kept, read)]
    for index, rule in enumerate(kept):
        lines += _branch(rule, first=index == 0, indent="    " if len(kept) == 1 else "        ")
    if changes:
        lines.append(f"    return {packed(machine)}, rule")
    return "\n".join(lines) + "\n"


_AT_ONCE = 30
"""CPython builds a larger tuple through a list, which takes five times as long."""


def packed(machine: Machine) -> str:
    """The machine's values as one tuple."""
    names = [v.name for v in machine.variables]
    parts = [names[i : i + _AT_ONCE] for i in range(0, len(names), _AT_ONCE)]
    return " + ".join(f"({', '.join(part)},)" if len(part) == 1 else f"({', '.join(part)})" for part in parts)


def live(rules: tuple[Rule, ...]) -> list[Rule]:
    """Without rules that can never fire: their guard is false, or an earlier one is always true."""
    kept: list[Rule] = []
    for rule in rules:
        if rule.guard != FALSE:
            kept.append(rule)
        if rule.guard == TRUE:
            break
    return kept


def _branch(rule: Rule, first: bool, indent: str) -> list[str]:
    comment = f"  # {rule.origin}"
    if len(indent) == 4:
        head = []
    elif rule.guard == TRUE:
        head = [f"    else:{comment}"]
    else:
        head = [f"    {'if' if first else 'elif'} {to_python(rule.guard)}:{comment}"]
    if not rule.updates:
        return [*head, f"{indent}return v, {_constant(rule)}{'' if head else comment}"]
    updates = [f"{indent}{update_line(update)}" for update in rule.updates]
    return [*head, *updates, f"{indent}rule = {_constant(rule)}{'' if head else comment}"]


def _unpack(kind: EventKind, group: str, rules: list[Rule], read: set[str]) -> list[str]:
    """Only a group whose fields are looked at is unpacked."""
    members = [f.name for f in kind.fields if f.group == group]
    spent = {u.by.name for r in rules for u in r.updates if isinstance(u, Spend) and isinstance(u.by, Field)}
    if not any(name in read or name in spent for name in members):
        return []
    return [f"    {', '.join(members)}{',' if len(members) == 1 else ''} = {group}"]


def update_line(update: Update) -> str:
    """One update of a variable as a line of Python."""
    match update:
        case Set("phase", to):
            return f"phase = {Phase.NAMES[to].upper()}"
        case Set(name, to) | Refill(name, to):
            return f"{name} = {to}"
        case Grant(name, by):
            return f"{name} += {by.name if isinstance(by, Field) else by}"
        case Count(name, by):
            return f"{name} {'+' if by > 0 else '-'}= 1"
        case Spend(name, Lit(1)):
            return f"{name} = {name} and {name} - 1"
        case Spend(name, by):
            return f"{name} = max(0, {name} - {to_python(by)})"
