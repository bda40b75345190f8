"""Around a policy's machine: what a host and a tree can do to a run is free, but not more than they can do.

The machine leaves every field of an event open. Here it is held to what the policy itself makes possible (no tool is
denied where none is) and, if asked for, to what a driver guarantees (a run goes to each client once) and to a run that
has nobody above it. For searches only: ``step`` decides as ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.core.ladders import Consult, Fallback, Retry
from engine.core.machine.expr import TRUE, Eq, Field, Le, Lit, Not, Var, all_of, any_of
from engine.core.machine.failure_plan import FailurePlan, failure_plans
from engine.core.machine.machine import Effect, EventKind, FieldDef, Machine, Phase, Rule, Set, Sort, Spend, Variable
from engine.core.machine.plan import ENOUGH
from engine.core.policy import Policy
from engine.core.vocabulary import RESOURCES
from engine.verify.composed import composed
from engine.verify.others import among_others
from engine.verify.successors import IMPOSSIBLE


@dataclass(frozen=True, slots=True)
class World:
    """``ancestors``: there may be some, and others of the tree draw on what is shared. ``clients``: a run goes to each
    client at most once by a ``fallback`` without ``for``, which is law L13. ``pauses``: a provider may pause a turn.
    ``whole``: what ``step`` does in one go is not interrupted (``composed``).
    ``plain``: nothing happens that needs a history of its own, such as open breakers and tools whose limit is spent.
    """

    ancestors: bool = True
    clients: bool = False
    pauses: bool = True
    whole: bool = False
    plain: bool = False


def around(machine: Machine, policy: Policy, world: World) -> Machine:
    """The machine in that world."""
    if world.ancestors and (policy.agents is not None or policy.agent):
        machine = among_others(machine, policy)
    machine = _pinned(machine, policy, world)
    if world.plain:
        machine = _plain(machine)
    machine = _clients(machine, policy, plain=world.plain) if world.clients else machine
    return _in_flight(composed(machine) if world.whole else machine)


_ODD = ("unstarted", "handoff", "hosted", "paused", "unmetered", "unpriced", "spawn", "tick")
"""What no simple run needs."""


def _plain(machine: Machine) -> Machine:
    """Only what runs are usually made of; nothing is spent of an amount before a model was heard of."""
    events = {name: kind for name, kind in machine.events.items() if name not in _ODD}
    events["answered"] = replace(events["answered"], phases=frozenset((Phase.CALLING,)))
    fresh = tuple(_fixed(f, ENOUGH if ENOUGH in f.values else None) for f in events["start"].fields)
    events["start"] = replace(events["start"], fields=fresh)
    events["attempt"] = replace(events["attempt"], phases=frozenset((Phase.WAITING,)))
    spent = [Not(Eq(Field(f.name), Lit(ENOUGH))) for f in events["call"].fields if ENOUGH in f.values]
    if not spent:
        return replace(machine, events=events)
    early = Rule("call.early", all_of(Eq(Var(_HEARD), Lit(0)), any_of(*spent)), (), Effect(IMPOSSIBLE), "default: call")
    rules = {name: tuple(_hearing(name, rule) for rule in rules) for name, rules in machine.rules.items()}
    rules["call"] = (early, *rules["call"])
    heard = Variable(_HEARD, Sort.FLAG, 0, "a model was heard of", 2)
    return replace(machine, variables=(*machine.variables, heard), events=events, rules=rules)


_HEARD = "heard_of_a_model"


def _hearing(event: str, rule: Rule) -> Rule:
    return replace(rule, updates=(*rule.updates, Set(_HEARD, 1))) if event in ("round", "empty", "failed") else rule


def _pinned(machine: Machine, policy: Policy, world: World) -> Machine:
    """Fields that can have one value only have that one."""
    pins = _nothing(policy, world) | _ladders(policy, world)
    events = {
        name: replace(kind, fields=tuple(_fixed(f, pins.get((name, f.name))) for f in kind.fields))
        for name, kind in machine.events.items()
    }
    return replace(machine, events=events)


def _fixed(field: FieldDef, value: int | None) -> FieldDef:
    return field if value is None else replace(field, values=(value,))


Pins = dict[tuple[str, str], int]
"""Event and field, to the one value that it can have."""


def _nothing(policy: Policy, world: World) -> Pins:
    out: set[tuple[str, str]] = set()
    if not any(rule.deny for rule in policy.tools):
        out.add(("tool", "denied"))
    if world.plain or not any(rule.limit is not None for rule in policy.tools):
        out.add(("tool", "limited"))
    if not world.ancestors:
        events = ("start", "call", "attempt", "failed", "handoff", "round", "tick", "tool", "judged")
        out |= {(event, name) for event in events for name in ("above", "late_above")}
        out.add(("spawn", "refused"))
    if not world.pauses:
        out.add(("paused", "more"))
    if world.plain:
        out |= {(event, "broken") for event in ("tool", "withheld", "unstarted")}
        out |= {
            ("tool", "no_time"),
            ("failed", "delivered"),
            ("failed", "cut"),
            ("tool", "unasked"),
            ("tool", "invalid"),
        }
    return dict.fromkeys(out, 0)


def _ladders(policy: Policy, world: World) -> Pins:
    """What a failure's ladder can do. With nobody above and no clock, a ``retry`` is in time unless its reason is one
    that retrying cures of nothing; a ladder is looked at from its start unless somebody was asked about it, or a call
    to another client was not admitted."""
    pins: Pins = {}
    clocks = any(limit.resource == "wall" and limit.max is not None for limit in policy.limits)
    steps = [step for plan in failure_plans(policy) for _, step in plan.steps()]
    asked = any(isinstance(step, Consult) for step in steps) or bool(policy.resolvers())
    bounded = any(RESOURCES[x.resource].kind == "amount" and x.max is not None for x in policy.limits)
    if not world.ancestors and not asked and (world.plain or not bounded):
        pins["failed", "start"] = 0
    for plan in failure_plans(policy):
        broad = any(reason in ("*", "provider") for reason in plan.rule.reasons)
        for place, step in plan.steps():
            if isinstance(step, Retry) and not world.ancestors and (world.plain or not (clocks or broad)):
                pins["failed", plan.fits(place)] = 1
            elif isinstance(step, Fallback) and world.plain and step.scope != "run":
                pins["failed", plan.switch(place)] = 1
    return pins


def _clients(machine: Machine, policy: Policy, *, plain: bool) -> Machine:
    """What is left of the clients that a run may switch to: of all of them, and of each step's where there are more.

    ``plain``: the host has all of them, so that as long as one is left there is one to go to.
    """
    steps = {(plan.index, place): step for plan, place, step in _switches(policy)}
    if not steps:
        return machine
    fuels = {_left(*at): len(step.clients) for at, step in steps.items()} if len(steps) > 1 else {}
    fuels[_LEFT] = len({name for step in steps.values() for name in step.clients})

    spent = {at: [name for name in (_left(*at), _LEFT) if name in fuels] for at in steps}

    def switching(rule: Rule) -> Rule:
        at = rule.effect.ladder, rule.effect.step
        if rule.effect.kind != "fallback" or at not in steps:
            return rule
        guard = all_of(rule.guard, *(Not(Le(Var(name), Lit(0))) for name in spent[at]))
        return replace(rule, guard=guard, updates=(*rule.updates, *(Spend(name) for name in spent[at])))

    variables = tuple(Variable(name, Sort.FUEL, most, "clients to go to") for name, most in fuels.items())
    never = [_gone(plan, place, spent[plan.index, place]) for plan, place, _ in _switches(policy)]
    if plain:
        never += [_there(plan, place, spent[plan.index, place]) for plan, place, _ in _switches(policy)]
    rules = {**machine.rules, "failed": (*never, *(switching(rule) for rule in machine.rules["failed"]))}
    return replace(machine, variables=(*machine.variables, *variables), rules=rules)


def _gone(plan: FailurePlan, place: int, spent: list[str]) -> Rule:
    """Where no client is left, a failure does not come with one to go to: its law would miss the step."""
    asked = all_of(Eq(Field("ladder"), Lit(plan.index)), Eq(Field(plan.switch(place)), Lit(1)))
    none = any_of(*(Le(Var(name), Lit(0)) for name in spent))
    return Rule(f"failed.gone.{plan.index}.{place}", all_of(asked, none), (), Effect(IMPOSSIBLE), "default: fallback")


def _there(plan: FailurePlan, place: int, spent: list[str]) -> Rule:
    """Where a client is left, a failure comes with one to go to."""
    asked = all_of(Eq(Field("ladder"), Lit(plan.index)), Eq(Field(plan.switch(place)), Lit(0)))
    some = all_of(*(Not(Le(Var(name), Lit(0))) for name in spent))
    return Rule(f"failed.there.{plan.index}.{place}", all_of(asked, some), (), Effect(IMPOSSIBLE), "default: fallback")


_LEFT = "clients_left"


def _left(ladder: int, place: int) -> str:
    return f"{_LEFT}_{ladder}_{place}"


def _switches(policy: Policy) -> list[tuple[FailurePlan, int, Fallback]]:
    return [
        (plan, place, step)
        for plan in failure_plans(policy)
        for place, step in plan.steps()
        if isinstance(step, Fallback) and step.scope == "run"
    ]


def _in_flight(machine: Machine) -> Machine:
    """While a run is stopping, ends of what was cancelled are reported, and more are awaited."""
    kind = EventKind("ending", (), frozenset((Phase.STOPPING,)), "something that was cancelled has ended", inner=True)
    wait = Rule("ending.wait", TRUE, (), Effect("wait"), "default: stop")
    return replace(machine, events={**machine.events, "ending": kind}, rules={**machine.rules, "ending": (wait,)})
