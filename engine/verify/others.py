"""A machine among others of its tree: they take of the limits that it shares, and give back, between its own events.

For exploration only. ``step`` is told amounts (``engine.core.trees``); here others take and return one at a time, and
never more than there is.
"""

from __future__ import annotations

from dataclasses import replace

from engine.core.machine.expr import TRUE, Eq, Field, Le, Lit, Not, Var, all_of
from engine.core.machine.machine import Effect, EventKind, FieldDef, Grant, Machine, Phase, Rule, Sort, Spend, Variable
from engine.core.machine.plan import Plan, plans_of
from engine.core.policy import Policy


def among_others(machine: Machine, policy: Policy) -> Machine:
    """The machine with what others do to its counted limits; the same if it shares none."""
    shared = [plan for plan in plans_of(policy) if plan.counted and plan.limit.scope != "run"]
    if not shared:
        return machine
    which = FieldDef("limit", tuple(plan.index + 1 for plan in shared), "1 + the limit that others draw on")
    back = FieldDef("returned", (0, 1), "they give back what they have taken")
    kind = EventKind("others", (which, back), Phase.LIVE, "others of the tree draw on a limit")
    taken = tuple(Variable(_taken(plan), Sort.FUEL, 0, f"what others took of {plan.limit.id}") for plan in shared)
    return replace(
        machine,
        variables=(*machine.variables, *taken),
        events={**machine.events, "others": kind},
        rules={**machine.rules, "others": _rules(shared)},
    )


def _rules(shared: list[Plan]) -> tuple[Rule, ...]:
    rules = []
    for plan in shared:
        mine, took = Eq(Field("limit"), Lit(plan.index + 1)), Var(_taken(plan))
        effect = Effect("others", plan.index)
        here = all_of(mine, Eq(Field("returned"), Lit(0)), Not(Le(Var(plan.fuel), Lit(0))))
        rules.append(Rule(f"others.took.{plan.name}", here, (Spend(plan.fuel), Grant(_taken(plan), 1)), effect, _WHY))
        here = all_of(mine, Eq(Field("returned"), Lit(1)), Not(Le(took, Lit(0))))
        rules.append(Rule(f"others.gave.{plan.name}", here, (Grant(plan.fuel, 1), Spend(_taken(plan))), effect, _WHY))
    return (*rules, Rule("others.none", TRUE, (), Effect("wait"), _WHY))


def _taken(plan: Plan) -> str:
    return f"{plan.name}_of_others"


_WHY = "default: ledger"
