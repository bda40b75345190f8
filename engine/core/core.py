"""``Core``: everything ``step`` looks up about one policy, computed once.

Tables only; the functions that use them are ``admission``, ``replies``, ``rounds`` and ``ends``.
"""

from __future__ import annotations

from typing import Any, Literal

from engine.core.amounts import Amount, Amounts, maximum_of
from engine.core.breaker_table import BreakerTable
from engine.core.decisions import Note
from engine.core.machine.build import METERS, build
from engine.core.machine.failure_plan import Occasion, occasions_of
from engine.core.machine.machine import Machine, Phase, Rule
from engine.core.machine.plan import Plan, plans_of
from engine.core.machine.rules import meter
from engine.core.policy import Consult, Finalize, Policy, Retry, Step
from engine.core.state import ASKED, NO_TIME, Book, LimitHit, Pools, Spent, State, Used
from engine.core.switching import Switching
from engine.core.texts import fill, quantity
from engine.core.thresholds import Standing, Thresholds
from engine.core.tool_rules import ToolRules
from engine.core.vocabulary import (
    DEFAULT_ATTEMPT_WALL_MS,
    DEFAULT_INSTRUCTION,
    OCCASION_WORDS,
    REFUSALS,
    RESOURCES,
    ROUND_REFUSAL,
)

PHASE, REASON, PENDING = 0, 1, 2
"""Where the first variables of every machine stand."""

Values = tuple[int, ...]


class Core:
    """The tables of one policy. ``react`` has one function for each event of the machine."""

    def __init__(self, policy: Policy, react: Any = None, machine: Machine | None = None) -> None:
        self.policy = policy
        self.machine = machine or build(policy)
        self.react = react
        self.plans = plans_of(policy)
        self.amounts = Amounts(policy, self.plans, self.machine)
        self.switching = Switching(policy)
        self.breakers = BreakerTable(policy)
        self.occasions = occasions_of(self.plans, self.switching.plans, self.breakers.all)
        self.text_asked = len(self.occasions) + 1
        self.tools = ToolRules(policy)
        self.has_thresholds = bool(policy.thresholds)
        self.attempt_wall = _attempt_wall(policy)
        self.final_tools: Literal["strip", "forbid"] = policy.finalization.tools
        self.atomic = any(plan.limit.atomic for plan in self.plans)
        self._step = tuple(self.machine.index(p.step) if p.step else -1 for p in self.plans)
        by_plan = {a.plan.index: _standing_of_amount(a) for a in self.amounts.limits}
        self._standings = tuple(by_plan.get(p.index) or _standing_of_count(p, self.machine) for p in self.plans)
        self.thresholds = Thresholds(policy, tuple(zip(self.plans, self._standings, strict=True)))
        self._instructions = tuple(tuple(_fixed_instruction(p, s) for s in p.steps) for p in self.plans)
        self._named = tuple((p.resource, p.limit.scope or "") for p in self.plans)
        self._meters = tuple(self.machine.index(meter(name)) for name in METERS)
        names = [v.name for v in self.machine.variables]
        self.asked = names.index("asked") if "asked" in names else -1
        self._asking = names.index("asking") if "asking" in names else -1
        self.rounds = names.index(meter("tool_iterations"))
        self._retries = {
            (plan.index, position): names.index(plan.retries(position))
            for plan in self.switching.plans
            for position, step in plan.steps()
            if isinstance(step, Retry)
        }
        self.shared_fuel = tuple(
            (p, self.machine.index(p.fuel)) for p in self.plans if p.counted and p.limit.scope != "run"
        )
        self.thread_fuel = tuple(p for p in self.plans if p.counted and p.limit.scope == "thread")

    def standing(self, plan: Plan, values: Values, book: Book, at: int) -> tuple[int, int]:
        """What a limit's scope has used, and its maximum as it stands."""
        return self._standings[plan.index](values, book, at)

    def hit(self, plan: Plan, values: Values, book: Book, at: int) -> LimitHit:
        """The limit in numbers, for an outcome."""
        used, maximum = self._standings[plan.index](values, book, at)
        (resource, scope), run, extra = self._named[plan.index], book.run, book.extra
        owner, aside = None, 0
        if scope != "run" and run.extra is not None:
            owner = run.extra.thread if scope == "thread" else run.extra.node
        if extra is not None and extra.pools is not None and extra.pools.aside:
            aside = min(used, dict(extra.pools.aside).get(plan.limit.id, 0))
        return LimitHit(resource, scope, owner or run.id, used, maximum, aside)

    def used(self, values: Values, spent: Spent) -> Used:
        """Everything the run has used so far."""
        calls, attempts, iterations, tools, unknown = self._meters
        return Used(
            values[calls],
            values[attempts],
            values[iterations],
            values[tools],
            values[unknown],
            spent.input,
            spent.output,
            spent.cached,
            spent.cache_write,
            spent.reasoning,
            spent.cost,
        )

    def words(self, plan: Plan, values: Values, book: Book, at: int) -> dict[str, str]:
        """What the placeholders of a text about this limit say."""
        return _words(plan.resource, *self.standing(plan, values, book, at))

    def final_occasion(self, values: Values) -> Occasion:
        """What made the final call of this run the final one."""
        return self.occasions[values[REASON] - 1]

    def pending_plan(self, values: Values) -> Plan:
        """The limit whose refused round waits for its final call."""
        plan = self.occasions[values[PENDING] - 1].plan
        assert plan is not None
        return plan

    def retries_left(self, ladder: int, values: Values) -> dict[int, int]:
        """What each ``retry`` of a failure ladder still grants the call in hand, by its position."""
        return {position: values[i] for (index, position), i in self._retries.items() if index == ladder}

    def questioned(self, values: Values) -> Plan:
        """The limit that a person is asked about."""
        return self.plans[(values[self._asking] - 1) % len(self.plans)]

    def refusing(self, resource: str, values: Values) -> Plan:
        """The limit on a counted resource that refuses more: the first that is spent, else the first."""
        plans = [plan for plan in self.plans if plan.resource == resource]
        return next((plan for plan in plans if not values[self.machine.index(plan.fuel)]), plans[0])

    def finalize_step(self, occasion: Occasion, values: Values) -> Finalize:
        """The finalization that an occasion stands at."""
        plan = occasion.plan
        if plan is None:
            assert occasion.step is not None
            return occasion.step
        place = self._step[plan.index]
        step = plan.steps[values[place] if place >= 0 else 0]
        assert isinstance(step, Finalize)
        return step

    def question(self, occasion: Occasion, values: Values) -> str:
        """The function of the host that the ladder asks where it stands."""
        if occasion.plan is None:
            return self.finalize_step(occasion, values).using or ""
        place = self._step[occasion.plan.index]
        step = occasion.plan.steps[values[place] if place >= 0 else 0]
        return step.name if isinstance(step, Consult) else getattr(step, "using", None) or ""

    def chosen(self, values: Values, verb: str) -> int:
        """The machine's field for a consultant's choice: 1 + the place of the first later step of that verb, else 0."""
        asked = values[self.asked]
        plan = self.occasions[asked - 1].plan if 0 < asked < self.text_asked else None
        if plan is None or not verb:
            return 0
        here = values[self._step[plan.index]]
        return next((i + 1 for i, step in plan.ladder() if i > here and step.do == verb), 0)

    def instruction(self, occasion: Occasion, values: Values, book: Book, at: int) -> str:
        """The instruction of the final call that this occasion grants."""
        plan = occasion.plan
        if plan is None:
            template = self.finalize_step(occasion, values).text or DEFAULT_INSTRUCTION
            return fill(template, {"resource": OCCASION_WORDS[occasion.resource]})
        place = self._step[plan.index]
        text = self._instructions[plan.index][values[place] if place >= 0 else 0]
        if text is None:
            template = self.finalize_step(occasion, values).text or DEFAULT_INSTRUCTION
            text = fill(template, self.words(plan, values, book, at))
        return text

    def refusal(self, plan: Plan, tool: str, values: Values, book: Book, at: int) -> str:
        """The result of a tool call that did not fit this limit."""
        used, maximum = self.standing(plan, values, book, at)
        template = ROUND_REFUSAL if plan.limit.atomic and used < maximum else REFUSALS[plan.resource]
        if self.policy.finalization.mode == "reactive" and self.policy.finalization.text:
            template = self.policy.finalization.text
        return fill(template, {"tool": tool, **self.words(plan, values, book, at)})

    def taken(self, plan: Plan, values: Values, s: State, pools: Pools | None) -> int:
        """What is taken of a counted limit by all who share it; calls about which people are asked hold their place."""
        taken: int = getattr(self.used(values, s.book.spent), plan.resource)
        if plan.resource == "tool_calls":
            taken += sum(call.status == ASKED for call in s.round)
        if plan.limit.scope == "thread":
            taken += getattr(s.book.run.thread_used, plan.resource)
        return taken if pools is None else taken + dict(pools.others).get(plan.limit.id, 0)

    def grown(self, plan: Plan, values: Values, s: State, at: int) -> Values:
        """The values once a limit has grown: what others have overdrawn of it is taken from that first.

        Others are those of the tree, and the earlier runs of the thread.
        """
        place = next((place for shared, place in self.shared_fuel if shared is plan), -1)
        if place < 0:
            return values
        left = max(0, self.standing(plan, values, s.book, at)[1] - self.taken(plan, values, s, s.book.pools))
        return values if left >= values[place] else (*values[:place], left, *values[place + 1 :])

    def extended(self, rule: Rule, values: Values, s: State, at: int) -> tuple[Values, Note]:
        """An extension was taken, was not enough to be taken, or nobody could be asked for one: what is noted of it."""
        plan, book = self.plans[rule.effect.limit], s.book
        if rule.effect.word == "extended":
            values = self.grown(plan, values, s, at)
        return values, self._extension(rule, plan, values, book, at)

    def _extension(self, rule: Rule, plan: Plan, values: Values, book: Book, at: int) -> Note:
        used, maximum = self.standing(plan, values, book, at)
        if rule.effect.word == "passed":
            text = f"an extension of {plan.limit.id} would not have been enough for the whole round"
            return Note("skipped", text, plan.resource, used, maximum, rule.origin)
        if rule.effect.word == "ungranted":
            text = f"nobody can be asked for more {plan.limit.id} in the midst of a round"
            return Note("withheld", text, plan.resource, used, maximum, rule.origin)
        return Note("extended", f"{plan.limit.id} was extended", plan.resource, used, maximum, rule.origin)


def _standing_of_amount(amount: Amount) -> Standing:
    return lambda values, book, at: (amount.used(book, at), amount.maximum(values))


def _standing_of_count(plan: Plan, machine: Machine) -> Standing:
    maximum_at, fuel = maximum_of(plan, machine), machine.index(plan.fuel)

    def standing(values: Values, book: Book, at: int) -> tuple[int, int]:
        maximum = maximum_at(values)
        return maximum - values[fuel], maximum

    return standing


def illegal_phase(state: State, what: str) -> str:
    """What to say of an event that its phase does not allow."""
    return f"{what} while the run is {Phase.NAMES[state.vars[PHASE]]}"


def _words(resource: str, used: int, maximum: int) -> dict[str, str]:
    unit = RESOURCES[resource].unit
    numbers = {"used": used, "limit": maximum, "left": max(0, maximum - used)}
    return {"resource": resource, **{name: quantity(unit, value) for name, value in numbers.items()}}


def _fixed_instruction(plan: Plan, step: Step) -> str | None:
    """The instruction of a ladder's step, if it says no number."""
    template = (step.text if isinstance(step, Finalize) else None) or DEFAULT_INSTRUCTION
    if any(number in template for number in ("{used}", "{limit}", "{left}")):
        return None
    return fill(template, {"resource": plan.resource})


def _attempt_wall(policy: Policy) -> int:
    for limit in policy.limits:
        if limit.resource == "attempt_wall":
            return NO_TIME if limit.max is None else limit.max
    return DEFAULT_ATTEMPT_WALL_MS
