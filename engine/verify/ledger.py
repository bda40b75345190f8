"""What a run has used, computed from its events alone: the second opinion on the core's arithmetic.

Deliberately not the core's own code. Integers: tokens, micro-dollars, milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.core.machine.laws import Laws
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, Plan
from engine.core.messages import Usage
from engine.core.policy import Ask, Consult, Extend, Finalize, Policy, Stop
from engine.core.state import Pools, Used
from engine.core.usage import cost


@dataclass
class Attempt:
    """One attempt on the wire, and the most that was reported of it."""

    model: str
    usage: Usage | None = None

    def report(self, usage: Usage) -> None:
        """A cumulative report: the largest of each category counts."""
        before = self.usage or Usage()
        pairs = ((getattr(before, name), getattr(usage, name)) for name in Usage.__struct_fields__)
        self.usage = Usage(*(max(a, b) for a, b in pairs))


@dataclass
class Ledger:
    """Everything a run has used. ``places``: how far the ladder of each limit (by index) has been climbed."""

    policy: Policy
    laws: Laws
    started: int = 0
    earlier: Used = field(default_factory=Used)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    tools: list[Usage] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    extended: set[int] = field(default_factory=set)
    granted: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    stood: int = 0
    pools: Pools = field(default_factory=Pools)
    """What the tree has shown last."""

    def extend(self, plan: Plan) -> None:
        """The extension of a limit was taken."""
        self.extended.add(plan.index)
        self.places[plan.index] = self.places.get(plan.index, 0) + 1

    def most(self, plan: Plan) -> int:
        """What a person may grant at once."""
        return next((s.up_to or plan.limit.max or 0 for s in plan.limit.then if isinstance(s, Ask)), 0)

    def grow(self, plan: Plan, amount: int) -> None:
        """A person has granted more; with the last time the ladder asks, it moves on."""
        self.granted[plan.index] = self.granted.get(plan.index, 0) + amount
        self.asked[plan.index] = self.asked.get(plan.index, 0) + 1
        if self.asked[plan.index] >= next(s.times for s in plan.limit.then if isinstance(s, Ask)):
            self.move_on(plan)

    def move_on(self, plan: Plan) -> None:
        """The step could not be taken, or nobody has granted it."""
        self.places[plan.index] = self.places.get(plan.index, 0) + 1

    def stand(self, ms: int) -> None:
        """Only people were awaited for so long: what counts time has stood still, unless it counts such time too."""
        self.started += ms
        self.stood += ms

    def others(self, plan: Plan) -> int:
        """What others of the tree have taken of a limit."""
        return dict(self.pools.others).get(plan.limit.id, 0)

    def counted_left(self, plan: Plan, asked: int) -> int:
        """What is left of a counted limit, with so many calls held for people."""
        own = self.counts.get(plan.resource, 0) + (asked if plan.resource == "tool_calls" else 0)
        earlier = getattr(self.earlier, plan.resource) if plan.limit.scope == "thread" else 0
        return max(0, self.maximum(plan) - own - earlier - self.others(plan))

    def _began(self, plan: Plan) -> int:
        if plan.limit.scope != "run" and self.pools.opened is not None:
            return self.pools.opened
        return self.started - self.stood if plan.limit.counting_approvals else self.started

    def choose(self, plan: Plan, verb: str) -> int:
        """A consultant chose the first later step of that verb; returns its place, or -1 if there is none."""
        here = self.places.get(plan.index, 0)
        later = [i for i, s in enumerate((*self._steps(plan), Stop())) if i > here and getattr(s, "do", "") == verb]
        if later:
            self.places[plan.index] = later[0]
        return later[0] if later else -1

    def attempt(self, call: str, number: int, began: Attempt) -> None:
        """An attempt begins. A host may use the name of a call again: what the earlier one has used stays used."""
        if (call, number) in self.attempts:
            self.attempts[f"{call} (earlier {len(self.attempts)})", number] = self.attempts.pop((call, number))
        self.attempts[call, number] = began

    def count(self, resource: str) -> None:
        """One more of a counted resource."""
        self.counts[resource] = self.counts.get(resource, 0) + 1

    def used(self) -> Used:
        """What the outcome of the run must say."""
        usages = [a.usage for a in self.attempts.values() if a.usage] + self.tools
        totals = {name: sum(getattr(u, name) for u in usages) for name in Usage.__struct_fields__}
        counts = {name: self.counts.get(name, 0) for name in _COUNTED}
        return Used(
            **counts,
            input_tokens=totals["input"],
            output_tokens=totals["output"],
            cached=totals["cached"],
            cache_write=totals["cache_write"],
            reasoning=totals["reasoning"],
            cost=self._cost(),
        )

    def _cost(self) -> int:
        prices = {price.model: price for price in self.policy.prices}
        known = [a for a in self.attempts.values() if a.usage is not None and a.model in prices]
        return sum(cost(prices[a.model], a.usage) for a in known if a.usage is not None)

    def left(self, plan: Plan, at: int) -> int:
        """What is left of an amount at a moment."""
        used, before = self.used(), self.earlier if plan.limit.scope == "thread" else Used()
        spent = {
            "wall": max(0, at - self._began(plan)),
            "tokens": used.tokens + before.tokens,
            "input_tokens": used.input_tokens + before.input_tokens,
            "output_tokens": used.output_tokens + before.output_tokens,
            "cost": used.cost + before.cost,
        }[plan.resource]
        return self.maximum(plan) - spent - self.others(plan)

    def state(self, plan: Plan, at: int, model: str, size: int) -> int:
        """What is left of an amount for a request of ``size`` tokens of input and one of output."""
        free = self.left(plan, at) - self._need(plan.resource, model, size)
        if free < 0:
            return NOTHING
        return RESERVE if free < self._kept(plan) else ENOUGH

    def late(self, at: int) -> bool:
        """A deadline has come."""
        return at >= self.deadline()

    def deadline(self, *, final: bool = True) -> int:
        """The moment by which the run must be over; less what is kept for the final call unless it is that one."""
        walls = [plan for plan in self.laws.plans if plan.resource == "wall"]
        kept = {plan.index: 0 if final else self._kept(plan) for plan in walls}
        own = [self._began(plan) + self.maximum(plan) - kept[plan.index] for plan in walls]
        return min([*own, self.pools.deadline])

    def _kept(self, plan: Plan) -> int:
        """The reserve, while a finalization is still ahead in the ladder."""
        ahead = self._steps(plan)[self.places.get(plan.index, 0) :]
        stops = [i for i, s in enumerate(ahead) if isinstance(s, Stop)]
        if stops and not any(isinstance(s, Consult) for s in ahead[: stops[0]]):
            ahead = ahead[: stops[0]]  # what stands behind it nobody can choose any longer
        return plan.limit.reserve if any(isinstance(s, Finalize) for s in ahead) else 0

    def _need(self, resource: str, model: str, size: int) -> int:
        price = next((p for p in self.policy.prices if p.model == model), None)
        if resource == "tokens":
            return size + 1
        if resource == "input_tokens":
            return max(1, size)
        return max(1, cost(price, Usage(input=size, output=1))) if resource == "cost" and price else 1

    def maximum(self, plan: Plan) -> int:
        """The maximum of a limit as it stands."""
        maximum = plan.limit.max or 0
        # Time is extended without a decision; of anything else the extension counts once its step is taken.
        counts = plan.resource == "wall" or plan.index in self.extended
        extended = sum(min(s.by, maximum) for s in plan.limit.then if counts and isinstance(s, Extend))
        return maximum + extended + self.granted.get(plan.index, 0)

    def _steps(self, plan: Plan) -> list[object]:
        """The ladder as its places are counted."""
        stops = [i for i, s in enumerate(plan.limit.then) if isinstance(s, Stop)]
        steps = plan.limit.then[: stops[0]] if stops else plan.limit.then
        untaken = plan.resource == "wall" or not plan.limit.max
        never = not plan.limit.max
        return [
            s
            for s in steps
            if not (untaken and isinstance(s, Extend)) and not (never and isinstance(s, Ask) and s.up_to is None)
        ]


_COUNTED = ("llm_calls", "llm_attempts", "tool_iterations", "tool_calls", "unknown_tools")
