"""A machine whose run uses amounts: tokens and money at any time once a call was made, time whenever it likes.

For searches about claims that compare amounts. What is used is remembered as a class of each (``claim_amounts``); an
event takes a run into higher ones, as far as numbers can be in all of them at once (``together``). What a limit leaves
goes with that: where as much is used as it ever has, nothing is left. Time is over at a deadline: what is in flight
then is cut, and ends within the grace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.core.machine.claim_amounts import Classes
from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.machine import Effect, EventKind, FieldDef, Machine, Phase, Rule, Set, Sort, Variable
from engine.core.machine.plan import NOTHING, Plan, plans_of
from engine.core.policy import Policy
from engine.verify.successors import IMPOSSIBLE
from engine.verify.together import together

_CALLED = "a_call_was_made"

_WHY = "default: usage"


def spending(machine: Machine, amounts: Sequence[Classes], policy: Policy) -> Machine:
    """The machine that uses these amounts; the same if there are none of which more than one class is told apart."""
    told = [classes for classes in amounts if len(classes.starts) > 1]
    if not told:
        return machine
    variables = [Variable(_so_far(c), Sort.FLAG, 0, f"class of {c.resource} used", len(c.starts)) for c in told]
    variables.append(Variable(_CALLED, Sort.FLAG, 0, "a call was admitted", 2))
    rules = {event: tuple(_knowing(event, known)) for event, known in machine.rules.items()}
    for event, known in rules.items():
        fields = {field.name for field in machine.events[event].fields}
        rules[event] = (*_too_late(event, fields, told, plans_of(policy)), *known)
    events = dict(machine.events)
    for event, made in (("spent", _spent), ("passed", _passed)):
        mine = [classes for classes in told if classes.event == event]
        if mine:
            fields_of_it = tuple(FieldDef(c.field, c.starts, f"so much {c.resource} is used by then") for c in mine)
            events[event] = EventKind(event, fields_of_it, Phase.LIVE | {Phase.STOPPING}, _DOCS[event])
            rules[event] = (*made(mine, policy), _none(f"{event}.none", TRUE))
    return replace(machine, variables=(*machine.variables, *variables), events=events, rules=rules)


_DOCS = {"spent": "some tokens are used", "passed": "some time passes"}


def _so_far(classes: Classes) -> str:
    return f"{classes.resource}_spent_so_far"


def _knowing(event: str, rules: Sequence[Rule]) -> Iterator[Rule]:
    for rule in rules:
        admits = event == "call" and rule.effect.kind in ("call", "final")
        yield replace(rule, updates=(*rule.updates, Set(_CALLED, 1))) if admits else rule


_MOST = 256
"""Choices of classes that are looked at one by one."""


def _spent(amounts: Sequence[Classes], policy: Policy) -> Iterator[Rule]:
    """Tokens of each kind and what they cost, all at once; each by itself where that would be very many choices."""
    if math.prod(len(classes.starts) for classes in amounts) <= _MOST:
        choices = [tuple(enumerate(chosen)) for chosen in together(amounts, policy.prices)]
    else:
        choices = [((i, place),) for i, classes in enumerate(amounts) for place in range(1, len(classes.starts))]
    for number, chosen in enumerate(choices):
        places = dict(chosen)
        guards: list[Expr] = [Eq(Var(_CALLED), Lit(1))]
        guards += [Eq(Field(a.field), Lit(a.starts[places.get(i, 0)])) for i, a in enumerate(amounts)]
        guards += [Le(Var(_so_far(amounts[i])), Lit(place)) for i, place in chosen]
        updates = tuple(Set(_so_far(amounts[i]), place) for i, place in chosen)
        yield Rule(f"spent.{number}", all_of(*guards), updates, Effect("wait", word="spent"), _WHY)


def _passed(amounts: Sequence[Classes], policy: Policy) -> Iterator[Rule]:
    (time,) = amounts
    for number, start in enumerate(time.starts):
        if number:
            guards: list[Expr] = [Eq(Field(time.field), Lit(start)), Le(Var(_so_far(time)), Lit(number - 1))]
            if number >= time.before_the_end:
                guards.append(Eq(Var("phase"), Lit(Phase.STOPPING)))
            effect = Effect("again", word="passed")
            yield Rule(f"passed.{number}", all_of(*guards), (Set(_so_far(time), number),), effect, _WHY)


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
