"""What is left of tokens, money and time: the numbers behind the machine's ``amounts`` fields.

Computes; decides nothing. All integers: tokens, micro-dollars, milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.machine.machine import Machine
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, Plan
from engine.core.messages import Usage
from engine.core.policy import Consult, Finalize, Policy, Price, Step, Stop
from engine.core.state import NO_TIME, Book, CallState, Earlier, Run, Spent
from engine.core.usage import cost, cost_increase, increase, largest, plain

_NO_USAGE = Usage()

Values = tuple[int, ...]

_USED: dict[str, Callable[[Book, int], int]] = {
    "tokens": lambda book, at: book.spent.input + book.spent.output,
    "input_tokens": lambda book, at: book.spent.input,
    "output_tokens": lambda book, at: book.spent.output,
    "cost": lambda book, at: book.spent.cost,
}
"""What the run itself has used by a moment."""

_USED_BEFORE: dict[str, Callable[[Book, int], int]] = {
    "tokens": lambda book, at: book.run.thread_used.tokens,
    "input_tokens": lambda book, at: book.run.thread_used.input_tokens,
    "output_tokens": lambda book, at: book.run.thread_used.output_tokens,
    "cost": lambda book, at: book.run.thread_used.cost,
}
"""What the thread's earlier runs have used."""

_NEED: dict[str, Callable[[Price | None, int], int]] = {
    "wall": lambda price, size: 1,
    "tokens": lambda price, size: size + 1,
    "input_tokens": lambda price, size: max(1, size),
    "output_tokens": lambda price, size: 1,
    "cost": lambda price, size: max(1, cost(price, Usage(size, 1))) if price else 1,
}
"""What a request of ``size`` input tokens needs, with one token of output."""


class Amount:
    """One limit on an amount.

    ``used(book, at)`` is what its scope has used, ``need(price, size)`` what a request needs, ``maximum(values)`` what
    there is, and ``kept(values)`` what an ordinary call must leave for the final one. ``moves``: the last two depend on
    how far the ladder has been climbed.
    """

    def __init__(self, plan: Plan, machine: Machine) -> None:
        self.plan = plan
        self.resource = plan.resource
        self.used = _used(plan)
        self.need = _NEED[plan.resource]
        self.moves = plan.step is not None
        self.began = began_of(plan)
        self.maximum = maximum_of(plan, machine)
        self.kept = _kept(plan, machine)


def maximum_of(plan: Plan, machine: Machine) -> Callable[[Values], int]:
    """The maximum of a limit as it stands, with what people have granted and the extension if it was taken."""
    alone = _extended(plan, machine)
    if plan.question() is None:
        return alone
    granted = machine.index(plan.granted)
    return lambda values: alone(values) + values[granted]


def _extended(plan: Plan, machine: Machine) -> Callable[[Values], int]:
    maximum, extension = plan.maximum, plan.extension()
    if extension is None or plan.step is None:
        return lambda values: maximum
    position, by = extension
    if plan.extended:
        taken = machine.index(plan.extended)
        return lambda values: maximum + by if values[taken] else maximum
    step = machine.index(plan.step)
    return lambda values: maximum + by if values[step] > position else maximum


def _kept(plan: Plan, machine: Machine) -> Callable[[Values], int]:
    """The reserve, while the ladder still has a finalization to make."""
    reserve = plan.limit.reserve
    if plan.step is None:
        kept = reserve if _final_ahead(plan.steps) else 0
        return lambda values: kept
    step = machine.index(plan.step)
    kept_at = tuple(reserve if _final_ahead(plan.steps[i:]) else 0 for i in range(len(plan.steps) + 1))
    return lambda values: kept_at[values[step]]


def _final_ahead(steps: tuple[Step, ...]) -> bool:
    """Behind a `stop` there is one only if a consultant before it may choose it."""
    chosen = False
    for step in steps:
        if isinstance(step, Finalize):
            return True
        if isinstance(step, Stop) and not chosen:
            return False
        chosen = chosen or isinstance(step, Consult)
    return False


def began_of(plan: Plan) -> Callable[[Run], int]:
    """The moment (ms) from which a wall counts; it has moved with the time in which only people were awaited.

    A node may have been spawned before this run of it began; then the ledger says when.
    """
    of_node, counting = plan.limit.scope != "run", plan.limit.counting_approvals

    def began(run: Run) -> int:
        if of_node and run.opened is not None:
            return run.opened
        return run.started - run.stood if counting else run.started

    return began


def _used(plan: Plan) -> Callable[[Book, int], int]:
    if plan.resource == "wall":
        return _time_used(plan)
    used = _USED[plan.resource]
    if plan.limit.scope == "run":
        return used
    others = _others(plan)
    if plan.limit.scope != "thread":
        return lambda book, at: used(book, at) + others(book)
    before = _USED_BEFORE[plan.resource]
    return lambda book, at: used(book, at) + before(book, at) + others(book)


def _time_used(plan: Plan) -> Callable[[Book, int], int]:
    began, counting = began_of(plan), plan.limit.counting_approvals

    def used(book: Book, at: int) -> int:
        now = at if counting or book.paused is None else min(at, book.paused)
        return max(0, now - began(book.run))

    return used


def _others(plan: Plan) -> Callable[[Book], int]:
    """What others of the tree have used of the limit, or hold."""
    name = plan.limit.id
    return lambda book: 0 if book.pools is None else dict(book.pools.others).get(name, 0)


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
        """The price of a model by its exact name, or ``None``: a guessed price would be a wrong limit."""
        return self.prices.get(model)

    def states(
        self,
        values: tuple[int, ...],
        book: Book,
        at: int,
        model: str = "",
        input_tokens: int | None = None,
        *,
        rounds: bool = False,
    ) -> tuple[int, ...]:
        """For each limit ``NOTHING``, ``RESERVE`` or ``ENOUGH`` for a request of this size and one token of output.

        Behind them, whether the time of an ancestor is over (1), and whether a pool of one refuses: a call, or with
        ``rounds`` a round.
        """
        price, size = self.prices.get(model), input_tokens or 0
        states = []
        for a in self.limits:
            free = a.maximum(values) - a.used(book, at) - a.need(price, size)
            states.append(NOTHING if free < 0 else RESERVE if free < a.kept(values) else ENOUGH)
        pools = book.pools
        if pools is None:
            return (*states, 0, 0)
        refused = pools.rounds if rounds else pools.refused
        return (*states, int(at >= pools.deadline), int(refused is not None))

    def deadline(self, values: tuple[int, ...], run: Run, final: bool) -> int:
        """The moment (ms) by which a call or tool must be over: earlier by the reserve unless the call is final."""
        earliest = run.above
        for a in self.walls:
            time = a.began(run) + a.maximum(values) - (0 if final else a.kept(values))
            if time < earliest:
                earliest = time
        return earliest

    def people_until(self, values: tuple[int, ...], run: Run) -> int:
        """Until when (ms) the walls that go on meanwhile let people take their time; all others stand still."""
        return self.people_wall(values, run)[0]

    def people_wall(self, values: tuple[int, ...], run: Run) -> tuple[int, str]:
        """The same with the origin of that wall."""
        going = (a for a in self.walls if a.plan.limit.counting_approvals)
        ends = ((a.began(run) + a.maximum(values) - a.kept(values), a.plan.origin) for a in going)
        return min(ends, default=(NO_TIME, ""))

    def largest_output(self, values: tuple[int, ...], book: Book, call: CallState, final: bool) -> int | None:
        """The largest output in tokens that every pool leaves, at most what the host asked for; ``None``: no bound."""
        bounds = [] if call.max_output is None else [call.max_output]
        size, price = call.input_tokens or 0, self.prices.get(call.model)
        if book.pools is not None and book.pools.output is not None:
            bounds.append(book.pools.output)
        for a in self.pools:
            left = a.maximum(values) - a.used(book, 0) - (0 if final else a.kept(values))
            if a.resource == "tokens":
                bounds.append(left - size)
            elif a.resource == "output_tokens":
                bounds.append(left)
            elif a.resource == "cost" and price is not None and price.output:
                bounds.append((left - cost(price, Usage(size))) * 1_000_000 // price.output)
        return max(1, min(bounds)) if bounds else None

    def charge(self, spent: Spent, call: CallState | Earlier, reported: Usage) -> tuple[Spent, Usage]:
        """Charge what a cumulative report of the call's attempt adds; returns what has now been charged for it."""
        before, price = call.charged, self.prices.get(call.model)
        if before is None:
            if plain(reported):  # the one report of its attempt, as a rule
                return add(spent, reported, cost(price, reported) if price else 0), reported
            before = _NO_USAGE
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
