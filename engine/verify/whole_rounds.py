"""A machine with ``atomic`` limits whose rounds can be judged call by call, whatever their size.

``step`` folds a round a second time where one call does not fit, and refuses all of them. Here what refuses a round is
chosen before its first call: a run of calls that do not fit and were not refused from the start does not come, and one
that is refused although all would fit does. That is more than can happen. For searches only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from engine.core.machine.expr import And, Eq, Expr, Field, Le, Lit, Not, Or, Var, all_of
from engine.core.machine.machine import Effect, FieldDef, Machine, Rule, Set, Sort, Variable
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import Policy
from engine.verify.atomic import is_atomic
from engine.verify.successors import IMPOSSIBLE

_FIELD = "round_refused"

REFUSED = "round_in_hand_refused"
"""1 + the atomic limit that refuses the round in hand; 0: none does."""

_REFUSING = "refusing"


def any_size(machine: Machine, policy: Policy) -> Machine:
    """The machine with rounds that are judged call by call, also where ``atomic`` limits refuse whole ones."""
    return call_by_call(machine, plans_of(policy)) if is_atomic(machine) else machine


def call_by_call(machine: Machine, plans: Sequence[Plan]) -> Machine:
    """The machine, which chooses what refuses a round when the round is admitted."""
    (values,) = [field.values for field in machine.events["tool"].fields if field.name == _FIELD]
    chosen = FieldDef(_REFUSING, values, "1 + the atomic limit that refuses the whole round")
    round, tool = machine.events["round"], machine.events["tool"]
    judged = tuple(field for field in tool.fields if field.name != _FIELD)
    events = machine.events | {
        "round": replace(round, fields=(*round.fields, chosen)),
        "tool": replace(tool, fields=judged),
    }
    rules = machine.rules | {
        "round": tuple(rule for known in machine.rules["round"] for rule in _admitted(known, values)),
        "tool": tuple(rule for known in machine.rules["tool"] for rule in _judged(known, plans)),
        "judged": tuple(replace(r, updates=(*r.updates, Set(REFUSED, 0))) for r in machine.rules["judged"]),
    }
    variable = Variable(REFUSED, Sort.FLAG, 0, "what refuses the round in hand", max(values) + 1)
    return replace(machine, variables=(*machine.variables, variable), events=events, rules=rules)


def _admitted(rule: Rule, values: Sequence[int]) -> Iterator[Rule]:
    if rule.effect.kind != "round":
        yield rule
        return
    *others, last = values
    for value in others:
        guard = all_of(rule.guard, Eq(Field(_REFUSING), Lit(value)))
        yield replace(rule, id=f"{rule.id}.{value}", guard=guard, updates=(*rule.updates, Set(REFUSED, value)))
    yield replace(rule, updates=(*rule.updates, Set(REFUSED, last)))


def _judged(rule: Rule, plans: Sequence[Plan]) -> Iterator[Rule]:
    guard = _remembered(rule.guard)
    whole = rule.effect.word == "tool_calls" and plans[rule.effect.limit].limit.atomic
    if whole:
        anew = all_of(guard, Eq(Var(REFUSED), Lit(0)))
        yield Rule(f"{rule.id}.anew", anew, (), Effect(IMPOSSIBLE), rule.origin)
    yield replace(rule, guard=guard)


def _remembered(expr: Expr) -> Expr:
    """The term, which reads what was chosen where it read what ``step`` tells of each call."""
    match expr:
        case Field(name):
            return Var(REFUSED) if name == _FIELD else expr
        case Le(left, right):
            return Le(_remembered(left), _remembered(right))
        case Eq(left, right):
            return Eq(_remembered(left), _remembered(right))
        case Not(of):
            return Not(_remembered(of))
        case And(parts):
            return And(tuple(_remembered(part) for part in parts))
        case Or(parts):
            return Or(tuple(_remembered(part) for part in parts))
        case Var() | Lit():
            return expr
