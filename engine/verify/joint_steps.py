"""One machine's reactions to what two machines are told together, as Python: a function for each way to be told it.

A reaction goes as far as an outsider must wait for it: a limit that is extended is looked at again within the same
event. What comes back is the number of an outlook and the machine's next values. Written for ``product``; knows one
machine at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.core.machine.expr import (
    FALSE,
    TRUE,
    And,
    Eq,
    Expr,
    Field,
    Le,
    Lit,
    Not,
    Or,
    Var,
    assume,
    evaluate,
    renamed,
    to_python,
)
from engine.core.machine.machine import Count, Machine, Refill, Rule, Set, Sort, Spend, Update
from engine.verify.choices import Open
from engine.verify.joint_fields import JointFields, Known
from engine.verify.outlooks import Outlook, of_effect
from engine.verify.successors import Branch

State = tuple[int, ...]
React = Callable[[State], tuple[int, State]]

_AGAIN_IN = frozenset(("call", "attempt", "round", "tool", "hosted"))
"""Events that are looked at again once a limit was extended, or a step passed by."""

_DEEPEST = 12
"""How often one event may be looked at again: each ladder moves on at most once a step."""


def looks_again(event: str, rule: Rule) -> bool:
    """Is the same event decided anew after this reaction?"""
    return rule.effect.kind == "again" and event in _AGAIN_IN


class Outlooks:
    """The outlooks seen so far, by number."""

    def __init__(self) -> None:
        self.found: list[Outlook] = []
        self._numbers: dict[Outlook, int] = {}

    def number(self, outlook: Outlook) -> int:
        if outlook not in self._numbers:
            self._numbers[outlook] = len(self.found)
            self.found.append(outlook)
        return self._numbers[outlook]


@dataclass(frozen=True)
class Told:
    """An event as a machine is told it: ``known`` are joint variables; more of them are asked for by ``Open``."""

    event: str
    phase: int
    known: Known


class Side:
    """One of the two machines."""

    def __init__(self, number: int, machine: Machine, fields: JointFields, outlooks: Outlooks) -> None:
        self.number, self.machine, self.fields, self.outlooks = number, machine, fields, outlooks
        self.context = fields.sides[number]
        self.plans = self.context.plans
        self.names = tuple(v.name for v in machine.variables if v.sort is not Sort.METER)
        self.initial = tuple(v.initial for v in machine.variables if v.sort is not Sort.METER)
        self._compiled: dict[str, React] = {}

    def reaction(self, told: Told) -> tuple[str, React]:
        """Text and function; equal texts are one function. Raises ``Open``."""
        text = "\n".join(self._lines(told, {name: name for name in self.names}, frozenset(), "    ", _DEEPEST))
        if text not in self._compiled:
            scope: dict[str, React] = {}
            head = f"def react(s):\n    {', '.join(self.names)}, = s\n"
            exec(compile(head + text, "<reaction>", "exec"), scope)
            self._compiled[text] = scope["react"]
        return text, self._compiled[text]

    def _lines(
        self, told: Told, now: Mapping[str, str], extended: frozenset[str], indent: str, deeper: int
    ) -> list[str]:
        lines: list[str] = []
        for rule in self.machine.rules[told.event]:
            guard = self._guard(told, rule.guard, now, extended)
            if guard == FALSE:
                continue
            inner = indent
            if guard != TRUE:
                lines.append(f"{indent}if {to_python(guard)}:")
                inner = indent + "    "
            lines += self._fires(told, rule, now, extended, inner, deeper)
            if guard == TRUE:
                break
        return lines

    def _fires(
        self, told: Told, rule: Rule, now: Mapping[str, str], extended: frozenset[str], indent: str, deeper: int
    ) -> list[str]:
        after = {**now, **{u.var: self._after(told, u, now, extended) for u in rule.updates if u.var in now}}
        if looks_again(told.event, rule) and deeper:
            more = extended | self._extends(rule)
            return self._lines(told, after, more, indent, deeper - 1)
        number = self.outlooks.number(of_effect(self.context, told.event, rule.effect))
        return [f"{indent}return {number}, ({', '.join(after[name] for name in self.names)},)"]

    def _extends(self, rule: Rule) -> frozenset[str]:
        limit = rule.effect.limit
        moves = rule.effect.word == "extended" and limit >= 0 and not self.plans[limit].counted
        return frozenset((self.plans[limit].field,)) if moves else frozenset()

    def value(self, told: Told, name: str, extended: frozenset[str]) -> int:
        """A field of the event. Raises ``Open``."""
        if name in extended:
            plan = next(plan for plan in self.plans if plan.field == name)
            return self.fields.again(self.number, plan, told.known)
        return self.fields.of(self.number, told.event, name, told.known)

    def _guard(self, told: Told, guard: Expr, now: Mapping[str, str], extended: frozenset[str]) -> Expr:
        known = {"phase": told.phase} | {n: int(text) for n, text in now.items() if text.lstrip("-").isdigit()}
        guard = assume(guard, known)
        while (name := _first_field(guard)) is not None:
            guard = assume(guard, {name: self.value(told, name, extended)})
        return renamed(guard, now)

    def _after(self, told: Told, update: Update, now: Mapping[str, str], extended: frozenset[str]) -> str:
        current = now[update.var]
        if isinstance(update, Set | Refill):
            return str(update.to)
        if isinstance(update, Count):
            return current
        by = update.by
        if isinstance(by, Field):
            by = self.value(told, by.name, extended)
        elif isinstance(by, Lit):
            by = by.value
        if isinstance(update, Spend):
            return f"({current} and {current} - 1)" if by == 1 else f"max(0, {current} - {by})"
        return f"({current} + {by})"

    # ---- a run that was found, once more and slowly

    def branches(self, told: Told, state: State) -> tuple[list[Branch], State]:
        """The reactions to one event, one by one, and the state after them."""
        values = dict(zip(self.names, state, strict=True))
        extended: frozenset[str] = frozenset()
        found: list[Branch] = []
        while True:
            fields = self._fields(told, extended)
            rule = next(r for r in self.machine.rules[told.event] if evaluate(r.guard, values, fields))
            found.append(Branch(told.event, fields, rule))
            now = {name: str(value) for name, value in values.items()}
            texts = {u.var: self._after(told, u, now, extended) for u in rule.updates if u.var in values}
            values |= {name: int(eval(text)) for name, text in texts.items()}
            if not looks_again(told.event, rule) or len(found) > _DEEPEST:
                return found, tuple(values.values())
            extended |= self._extends(rule)

    def _fields(self, told: Told, extended: frozenset[str]) -> dict[str, int]:
        """All fields: those that nobody looked at as mild as can be."""
        found: dict[str, int] = {}
        known = dict(told.known)
        for field in self.machine.events[told.event].fields:
            while field.name not in found:
                try:
                    found[field.name] = self.value(Told(told.event, told.phase, known), field.name, extended)
                except Open as missing:
                    known[missing.name] = 0
        return found


def _first_field(expr: Expr) -> str | None:
    match expr:
        case Field(name):
            return name
        case Le(left, right) | Eq(left, right):
            return _first_field(left) or _first_field(right)
        case Not(of):
            return _first_field(of)
        case And(parts) | Or(parts):
            return next((found for part in parts if (found := _first_field(part))), None)
        case Var() | Lit():
            return None
