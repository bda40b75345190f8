"""What the rules of every event share: the policy seen as a context, and the rules about a limit that is spent."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.machine.expr import TRUE, Eq, Expr, Field, Lit, Var, all_of, any_of
from engine.core.machine.failure_plan import (
    FailurePlan,
    Occasion,
    breakers_of,
    failure_plans,
    occasions_of,
)
from engine.core.machine.machine import Effect, Grant, Phase, Rule, Set, Update
from engine.core.machine.plan import DRAWN_BY_CALLS, Plan, origin_of, plans_of
from engine.core.policy import Breaker, Consult, Finalize, Policy

Updates = tuple[Update, ...]

NOT_FINAL = Eq(Var("reason"), Lit(0))
"""No finalization has happened."""


def meter(resource: str) -> str:
    """The variable that counts what was used of a counted resource."""
    return f"used_{resource}"


def to(phase: int, *more: Update) -> Updates:
    """The updates of a rule that takes the run to a phase."""
    return (Set("phase", phase), *more)


@dataclass(frozen=True, slots=True)
class Context:
    """A policy with its limits in the machine's order."""

    policy: Policy
    plans: tuple[Plan, ...]
    failures: tuple[FailurePlan, ...]
    breakers: tuple[Breaker, ...]
    occasions: tuple[Occasion, ...]

    @classmethod
    def of(cls, policy: Policy) -> Context:
        plans, failures, breakers = plans_of(policy), failure_plans(policy), breakers_of(policy)
        return cls(policy, plans, failures, breakers, occasions_of(plans, failures, breakers))

    @property
    def reactive(self) -> bool:
        return self.policy.finalization.mode == "reactive"

    @property
    def resolvers(self) -> bool:
        """Does the policy call functions of the host?"""
        return bool(self.policy.resolvers())

    @property
    def mode_origin(self) -> str:
        return origin_of(self.policy.finalization.origin, "default: finalization")

    def of_resource(self, resource: str) -> list[Plan]:
        return [plan for plan in self.plans if plan.resource == resource]

    def drawn(self) -> list[Plan]:
        """Limits of which something must be left when a call is admitted."""
        return [plan for plan in self.plans if plan.resource in DRAWN_BY_CALLS]

    def drawn_pools(self) -> list[Plan]:
        """Those of them that live as long as the node: looked at before what its ancestors leave."""
        return [plan for plan in self.drawn() if plan.limit.scope in ("subtree", "node")]

    def drawn_counters(self) -> list[Plan]:
        """Those of them that are the run's or its thread's: looked at after what the ancestors leave."""
        return [plan for plan in self.drawn() if plan.limit.scope not in ("subtree", "node")]

    def preferred(self) -> list[Occasion]:
        """All occasions for a final call, those first whose finalization wins where several meet."""
        order = self.policy.finalization.order
        return sorted(self.occasions, key=lambda occasion: (order.index(occasion.resource), occasion.code))

    @property
    def text_asked(self) -> int:
        """Value of ``asked`` while the host computes the text of a reactive refusal."""
        return len(self.occasions) + 1

    def consult_asked(self, failure: FailurePlan) -> int:
        """Value of ``asked`` while the host is consulted about a failure."""
        return self.text_asked + failure.index


def asks_host(plan: Plan) -> bool:
    """Does a step of the ladder call a function of the host?"""
    return any(isinstance(s, Consult) or (isinstance(s, Finalize) and s.using) for s in plan.steps)


def rule(id: str, plan: Plan | Occasion, guard: Expr, updates: Updates, kind: str, word: str, step: int = 0) -> Rule:
    """A rule about one limit, and, where there are several, one step of its ladder."""
    name = f"{id}.{plan.name}.{step + 1}" if step else f"{id}.{plan.name}"
    return Rule(name, guard, updates, Effect(kind, plan.index, word), plan.origin)


def late(c: Context, event: str, guard: Expr = TRUE, effect: str = "end") -> list[Rule]:
    """A deadline has passed: it comes first, whatever else is true."""
    after = to(Phase.STOPPING if effect == "stop" else Phase.ENDED)
    name = f"{event}.late" if effect == "end" else f"{event}.{effect}"
    own = [
        rule(name, plan, all_of(guard, plan.exhausted()), after, effect, "incomplete") for plan in c.of_resource("wall")
    ]
    passed = all_of(guard, Eq(Field("late_above"), Lit(1)))
    return [*own, Rule(f"{name}.above", passed, after, Effect(effect, word="wall_above"), "default: ancestor")]


def refused_above(event: str, word: str = "above") -> Rule:
    """A pool of an ancestor does not leave what is needed; whose it is stands in what the ledger has shown."""
    refused = Eq(Field("above"), Lit(1))
    return Rule(f"{event}.above", refused, to(Phase.ENDED), Effect("end", word=word), "default: ancestor")


def would_not_fit(c: Context, event: str, plan: Plan) -> list[Rule]:
    """Nothing is left: the ladder's extension is taken now, or a person asked for more, or else the run ends."""
    end = rule(f"{event}.spent", plan, plan.exhausted(), to(Phase.ENDED), "end", "incomplete")
    # The final call may use what is kept for it, so for its own attempts only nothing at all is too little.
    short = plan.exhausted() if plan.counted else any_of(plan.exhausted(), all_of(NOT_FINAL, plan.tight()))
    asks = consults(event, plan, short) if event == "call" else []
    return [*extensions(event, plan, short), *questions(c, event, plan, short), *asks, end]


def asking(c: Context, plan: Plan, *, again: bool = False) -> int:
    """Value of ``asking`` while a person is asked about a limit; ``again``: before a further attempt."""
    return 1 + plan.index + (len(c.plans) if again else 0)


def questions(c: Context, event: str, plan: Plan, reached: Expr) -> list[Rule]:
    """The ladder stands at an ``ask``: the run is suspended until a person has answered."""
    asked = plan.question()
    if asked is None:
        return []
    updates = to(Phase.ASKING, Set("asking", asking(c, plan, again=event == "attempt")))
    # What the host was asked for by then is asked for again: time passes meanwhile.
    updates += (Set("asked", 0), Set("given", 0)) if c.resolvers else ()
    return [rule(f"{event}.question", plan, all_of(reached, plan.at(asked[0])), updates, "suspend", "ask")]


def consults(event: str, plan: Plan, reached: Expr) -> list[Rule]:
    """The ladder stands at a ``consult``: the host chooses the step that is taken."""
    ask = to(Phase.RESOLVING, Set("asked", plan.index + 1), Set("given", 0))
    return [
        rule(f"{event}.consult", plan, all_of(reached, plan.at(position)), ask, "resolve", "consult", position)
        for position, step in plan.ladder()
        if isinstance(step, Consult)
    ]


def extensions(event: str, plan: Plan, exhausted: Expr) -> list[Rule]:
    """The ladder stands at an ``extend``: it is taken, and the event looked at again."""
    extension = plan.extension()
    if extension is None or plan.step is None:
        return []
    position, by = extension
    updates: Updates = (Set(plan.step, position + 1),)
    if plan.counted:
        updates = (*updates, Grant(plan.fuel, by))
    if plan.extended:
        updates = (*updates, Set(plan.extended, 1))
    guard = all_of(exhausted, plan.at(position))
    return [rule(f"{event}.extend", plan, guard, updates, "again", "extended")]
