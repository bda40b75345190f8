"""The machine with its laws as Promela, for Spin: a second opinion on what the exact search finds.

One state of the model is one state of the search, and one step is one reaction, so that both can be
counted against each other; laws are assertions. What the search shares with it is which choices of an event's fields
make a difference; guards, updates and laws are written anew from the terms, and how they are walked through is Spin's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine.core.machine.expr import FALSE, TRUE, And, Eq, Expr, Field, Le, Lit, Not, Or, Var, all_of, assume
from engine.core.machine.laws import Laws
from engine.core.machine.machine import Count, EventKind, Grant, Machine, Phase, Refill, Rule, Set, Sort, Spend, Update
from engine.verify.atomic import is_atomic
from engine.verify.choices import Reaction
from engine.verify.observe import observe
from engine.verify.successors import BESIDE, IMPOSSIBLE, JUDGED, Writer, beside

_SHORT = 30_000
"""Larger numbers do not fit into a ``short``."""


def promela(machine: Machine, laws: Laws, *, max_open: int = 2) -> str:
    """The model. Of a law that does not hold, Spin says ``assertion violated``.

    ``ValueError`` for a machine that refuses whole rounds (an ``atomic`` limit), which the search judges in one go.
    """
    if is_atomic(machine):
        raise ValueError("rounds of an `atomic` limit are judged as a whole, which is not written as Promela")
    return _Promela(machine, laws, max_open).model()


class _Promela(Writer):
    def model(self) -> str:
        options = [text for phase in range(len(Phase.NAMES)) for text in self._phase(phase)]
        loop = ["active proctype policy() {", "end:", "  do", *options, "  od", "}"]
        return "\n".join([*self._declared(), "", *loop, ""])

    def _declared(self) -> Iterator[str]:
        """A variable each; and one beside each ghost, which is no part of a state, for what it is about to become."""
        flags = {v.name for v in self.machine.variables if v.sort is Sort.FLAG} | set(BESIDE)
        wide = "int" if max(self.initials.values()) >= _SHORT else "short"
        for name in self.names:
            initial = self.initials.get(name, 0)
            yield f"{'byte' if name in flags else wide} {_name(name)} = {initial};"
        for ghost in self.laws.ghosts:
            yield f"hidden int {_next(ghost.name)};"

    def _phase(self, phase: int) -> Iterator[str]:
        for kind in self.machine.events.values():
            if phase not in kind.phases:
                continue
            may = all_of(Eq(Var("phase"), Lit(phase)), self.when(kind, phase))
            for chain in self.options(kind, phase):
                yield f"  :: d_step {{ /* {kind.name} */ {written(may)} ->"
                yield from _first(chain, "    ")
                yield "  }"

    def _reaction(self, kind: EventKind, rule: Rule, fields: Mapping[str, int]) -> Iterator[str]:
        """Let the laws look at it, and go on to the state it leads to."""
        yield f"/* {rule.id} */"
        if rule.effect.kind == IMPOSSIBLE or (kind.name == "tool" and rule.effect.kind == "suspend"):
            return  # as in the search: nothing of the kind comes, or the judging is given up
        for seen, told in observe(self.laws.plans, kind.name, fields, rule.effect):
            yield from self._watched(seen, told)
        for update in rule.updates:
            if update.var in self.names:  # meters are no part of a state
                yield f"{_name(update.var)} = {_updated(update, fields)};"
        judged = self.judged(kind, rule)
        after = beside(kind, rule) | ({JUDGED: judged} if judged else {})
        yield from (f"{_name(name)} = {_named(text)};" for name, text in after.items())

    def _watched(self, seen: str, fields: Mapping[str, int]) -> Iterator[str]:
        """Checks, then all ghosts together, which read their old values."""
        for check in self.laws.checks:
            if check.seen == seen:
                bad = assume(all_of(check.premise, Not(check.demand)), fields)
                if bad != FALSE:
                    yield f"assert({written(assume(Not(bad), {}))});"
        moved = []
        for ghost in self.laws.ghosts:
            text = _name(ghost.name)
            for case in reversed([case for case in ghost.on if case.seen == seen]):
                guard = assume(case.guard, fields)
                if guard != FALSE:
                    text = f"({written(guard)} -> {_updated(case.update, fields)} : {text})"
            if text != _name(ghost.name):
                moved.append(ghost.name)
                yield f"{_next(ghost.name)} = {text};"
        yield from (f"{_name(name)} = {_next(name)};" for name in moved)
        yield from (f"{_next(name)} = 0;" for name in moved)


def _first(chain: list[Reaction], indent: str) -> Iterator[str]:
    """The first rule whose guard holds, the others only where it does not."""
    reaction, rest = chain[0], chain[1:]
    lines = [f"{indent}  {line}" for line in reaction.lines]
    if reaction.guard == TRUE:
        yield from lines
        yield f"{indent}  skip"
        return
    yield f"{indent}if"
    yield f"{indent}:: {written(reaction.guard)} ->"
    yield from lines
    yield f"{indent}  skip"
    yield f"{indent}:: else ->"
    yield from _first(rest, indent + "  ")
    yield f"{indent}fi"


def written(expr: Expr) -> str:
    """A term as Promela."""
    match expr:
        case Lit(value):
            return str(value)
        case Var(name) | Field(name):
            return _name(name)
        case Le(left, right):
            return f"({written(left)} <= {written(right)})"
        case Eq(left, right):
            return f"({written(left)} == {written(right)})"
        case Not(of):
            return f"!({written(of)})"
        case And(parts):
            return f"({' && '.join(map(written, parts))})" if parts else "true"
        case Or(parts):
            return f"({' || '.join(map(written, parts))})" if parts else "false"


def _updated(update: Update, fields: Mapping[str, int]) -> str:
    """What becomes of a variable, in terms of itself."""
    now = _name(update.var)
    match update:
        case Set(_, to) | Refill(_, to):
            return str(to)
        case Grant(_, by):
            return f"{now} + {fields[by.name] if isinstance(by, Field) else by}"
        case Spend(_, by):
            less = fields[by.name] if isinstance(by, Field) else by.value
            return f"({now} > {less} -> {now} - {less} : 0)"
        case Count():
            return now


def _name(name: str) -> str:
    """Marked, since ``open`` and the like may be words of Promela or of C."""
    return f"v_{name}"


def _next(name: str) -> str:
    return f"next_{name}"


def _named(text: str) -> str:
    """A number, or a variable with what is added to it."""
    return re.sub(r"[a-z]\w*", lambda word: _name(word[0]), text)
