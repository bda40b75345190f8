"""A machine whose run uses amounts: tokens and money at any time once a call was made, time whenever it likes.

For searches about claims that compare amounts. What is used is remembered as a class (``claim_amounts``); an event
``spent`` takes it into a higher one. What a limit leaves goes with that: where as much is used as it ever has, nothing
is left. Time is over at a deadline: what is in flight then is cut, and ends within the grace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.core.machine.claim_amounts import Classes
from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.machine import Effect, EventKind, FieldDef, Machine, Phase, Rule, Set, Sort, Variable
from engine.core.machine.plan import NOTHING, Plan
from engine.verify.successors import IMPOSSIBLE

_CALLED = "a_call_was_made"

_WHY = "default: usage"


def spending(machine: Machine, amounts: Sequence[Classes], plans: Sequence[Plan]) -> Machine:
    """The machine that uses these amounts; the same if there are none of which more than one class is told apart."""
    amounts = [classes for classes in amounts if len(classes.starts) > 1]
    if not amounts:
        return machine
    named = {classes.resource: classes for classes in amounts}
    starts = sorted({start for classes in amounts for start in classes.starts})
    of = FieldDef("of", tuple(classes.number for classes in amounts), "1 + the amount that is used")
    to = FieldDef("to", tuple(starts), "so much of it is used by then")
    kind = EventKind("spent", (of, to), Phase.LIVE | {Phase.STOPPING}, "some of an amount is used")
    variables = [Variable(_so_far(c), Sort.FLAG, 0, f"class of {c.resource} used", len(c.starts)) for c in amounts]
    variables.append(Variable(_CALLED, Sort.FLAG, 0, "a call was admitted", 2))
    rules = {event: tuple(_knowing(event, known)) for event, known in machine.rules.items()}
    for event, known in rules.items():
        fields = {field.name for field in machine.events[event].fields}
        rules[event] = (*_too_late(event, fields, amounts, plans), *known)
    rules["spent"] = (*(rule for c in amounts for rule in _uses(c, named)), _none("spent.none", TRUE))
    return replace(
        machine,
        variables=(*machine.variables, *variables),
        events={**machine.events, "spent": kind},
        rules=rules,
    )


def _so_far(classes: Classes) -> str:
    return f"{classes.resource}_spent_so_far"


def _knowing(event: str, rules: Sequence[Rule]) -> Iterator[Rule]:
    for rule in rules:
        admits = event == "call" and rule.effect.kind in ("call", "final")
        yield replace(rule, updates=(*rule.updates, Set(_CALLED, 1))) if admits else rule


def _tokens(classes: Classes, start: int, others: Mapping[str, Classes]) -> Iterator[Expr]:
    """Tokens of one kind are tokens, and what costs something has used some."""
    tokens = others.get("tokens")
    if tokens is not None and classes.resource != "tokens":
        least = tokens.of(1 if classes.resource == "cost" else start)
        yield Not(Le(Var(_so_far(tokens)), Lit(least - 1)))


def _uses(classes: Classes, others: Mapping[str, Classes]) -> Iterator[Rule]:
    timed = classes.resource == "wall"
    now = Var(_so_far(classes))
    for number, start in enumerate(classes.starts):
        if number:
            guards: list[Expr] = [Eq(Field("of"), Lit(classes.number)), Eq(Field("to"), Lit(start))]
            guards.append(Le(now, Lit(number - 1)))
            if not timed:
                guards += [Eq(Var(_CALLED), Lit(1)), *_tokens(classes, start, others)]
            elif number >= classes.before_the_end:
                guards.append(Eq(Var("phase"), Lit(Phase.STOPPING)))
            effect = Effect("again" if timed else "wait", word="passed" if timed else "spent")
            name = f"spent.{classes.resource}.{number}"
            yield Rule(name, all_of(*guards), (Set(now.name, number),), effect, _WHY)


def _too_late(event: str, fields: set[str], amounts: Sequence[Classes], plans: Sequence[Plan]) -> Iterator[Rule]:
    """Where all that a limit ever has is used, its field does not say that something is left."""
    for classes in amounts:
        timed = classes.resource == "wall"
        for plan in plans:
            looked_at = event != "start" if timed else event in ("call", "attempt")
            if plan.resource == classes.resource and plan.field in fields and looked_at:
                left = Not(Eq(Field(plan.field), Lit(NOTHING)))
                first = classes.since(plan.utmost())
                whole = Not(Le(Var(_so_far(classes)), Lit(first - 1)))
                if first < len(classes.starts):
                    yield _none(f"{event}.used_up.{plan.name}", all_of(left, whole))


def _none(id: str, guard: Expr) -> Rule:
    return Rule(id, guard, (), Effect(IMPOSSIBLE), _WHY)
