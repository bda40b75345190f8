"""What is left of tokens, money and time: the numbers behind the machine's ``amounts`` fields.

Computes; decides nothing. All integers: tokens, micro-dollars, milliseconds.
"""

from __future__ import annotations

from engine.core.machine.machine import Machine
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, Plan
from engine.core.messages import Usage
from engine.core.policy import Finalize, Policy, Price
from engine.core.state import NO_TIME, Book, CallState, Run, Spent
from engine.core.usage import cost, cost_increase, find_price, increase, largest

_NO_USAGE = Usage()


class Amount:
    """One limit on an amount. ``reserve`` counts while its ladder still has a finalization to make."""

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan = plan
        self.resource = plan.resource
        self.thread = plan.limit.scope == "thread"
        self.reserve = plan.limit.reserve
        self.step = machine.index(plan.step) if plan.step else None
        self.last_finalize = max((i for i, s in enumerate(plan.steps) if isinstance(s, Finalize)), default=-1)
        self.extension = plan.extension()

    def maximum(self, values: tuple[int, ...]) -> int:
        """The maximum as it stands, with the extension if it was taken."""
        if self.extension and self.step is not None and values[self.step] > self.extension[0]:
            return self.plan.maximum + self.extension[1]
        return self.plan.maximum

    def kept(self, values: tuple[int, ...]) -> int:
        """What an ordinary call must leave for the final one."""
        position = values[self.step] if self.step is not None else 0
        return self.reserve if position <= self.last_finalize else 0

    def used(self, book: Book, at: int) -> int:
        """What the limit's scope has used by now."""
        run, spent = book.run, book.spent
        before = run.thread_used if self.thread else None
        match self.resource:
            case "wall":
                return max(0, at - run.started)
            case "tokens":
                return spent.input + spent.output + (before.tokens if before else 0)
            case "input_tokens":
                return spent.input + (before.input_tokens if before else 0)
            case "output_tokens":
                return spent.output + (before.output_tokens if before else 0)
        return spent.cost + (before.cost if before else 0)


class Amounts:
    """The limits on amounts of one policy, in the machine's order."""

    def __init__(self, policy: Policy, plans: tuple[Plan, ...], machine: Machine) -> None:
        self.limits = tuple(Amount(plan, machine) for plan in plans if not plan.counted)
        self.walls = tuple(a for a in self.limits if a.resource == "wall")
        self.pools = tuple(a for a in self.limits if a.resource != "wall")
        self.metered = bool(self.pools)
        self.priced = any(a.resource == "cost" for a in self.pools)
        self.prices = {price.model: price for price in policy.prices}

    def price(self, model: str) -> Price | None:
        """The price of a model, by its exact name."""
        return find_price(self.prices.values(), model) if self.prices else None

    def states(
        self, values: tuple[int, ...], book: Book, at: int, model: str = "", input_tokens: int | None = None
    ) -> tuple[int, ...]:
        """For each limit ``NOTHING``, ``RESERVE`` or ``ENOUGH`` for a request of this size and one token of output."""
        return tuple(self._state(a, values, book, at, model, input_tokens or 0) for a in self.limits)

    def _state(self, a: Amount, values: tuple[int, ...], book: Book, at: int, model: str, size: int) -> int:
        left = a.maximum(values) - a.used(book, at)
        need = self._need(a.resource, model, size)
        if left < need:
            return NOTHING
        return RESERVE if left - need < a.kept(values) else ENOUGH

    def _need(self, resource: str, model: str, size: int) -> int:
        if resource == "tokens":
            return size + 1
        if resource == "input_tokens":
            return max(1, size)
        if resource == "cost":
            price = self.price(model)
            return max(1, cost(price, Usage(input=size, output=1))) if price else 1
        return 1

    def deadline(self, values: tuple[int, ...], run: Run, final: bool) -> int:
        """The moment (ms) by which a call or tool must be over: earlier by the reserve unless the call is final."""
        times = [run.started + a.maximum(values) - (0 if final else a.kept(values)) for a in self.walls]
        return min(times, default=NO_TIME)

    def largest_output(self, values: tuple[int, ...], book: Book, call: CallState, final: bool) -> int | None:
        """The largest output in tokens that every pool leaves, at most what the host asked for; ``None``: no bound."""
        bounds = [] if call.max_output is None else [call.max_output]
        size = call.input_tokens or 0
        for a in self.pools:
            left = a.maximum(values) - a.used(book, 0) - (0 if final else a.kept(values))
            if a.resource == "tokens":
                bounds.append(left - size)
            elif a.resource == "output_tokens":
                bounds.append(left)
            elif a.resource == "cost" and (price := self.price(call.model)) and price.output:
                bounds.append((left - cost(price, Usage(input=size))) * 1_000_000 // price.output)
        return max(1, min(bounds)) if bounds else None

    def charge(self, spent: Spent, call: CallState, reported: Usage) -> tuple[Spent, Usage]:
        """Charge what a cumulative report of the call's attempt adds; returns what has now been charged for it."""
        before = call.charged or _NO_USAGE
        price = self.price(call.model)
        more = cost_increase(price, before, reported) if price else 0
        return add(spent, increase(before, reported), more), largest(before, reported)

    def charge_tool(self, spent: Spent, usage: Usage) -> Spent:
        """Charge the tokens that a tool has used; their price is not known."""
        return add(spent, usage, 0)


def add(spent: Spent, usage: Usage, micro_dollars: int) -> Spent:
    """``spent`` with one more use of tokens and money."""
    return Spent(
        spent.input + usage.input,
        spent.output + usage.output,
        spent.cached + usage.cached,
        spent.cache_write + usage.cache_write,
        spent.reasoning + usage.reasoning,
        spent.cost + micro_dollars,
    )
