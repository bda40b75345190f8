"""What the generated ``step`` says of tokens, money, time and thresholds: when is a turn ordinary?

An ordinary turn is far from every amount and crosses no threshold, so all that is printed here are comparisons with
constants of the policy. Ladders that move make those constants move: such policies have no generated ``step``.
"""

from __future__ import annotations

from engine.core.amounts import Amount
from engine.core.core import Core
from engine.core.machine.expr import names
from engine.core.machine.plan import Plan

_USED = {
    "tokens": "spent.input + spent.output",
    "input_tokens": "spent.input",
    "output_tokens": "spent.output",
    "cost": "spent.cost",
    "wall": "at - book.run.started",
}
_NEED = {"tokens": " + size", "input_tokens": " + size", "cost": " + least"}
"""What a call needs on top, besides the one unit that everything needs."""

_INPUT_COST = "-(-size * price.input // 1_000_000)"


def constant(core: Core) -> bool:
    """Does no amount, and no limit with a threshold, move with its ladder?"""
    watched = {threshold.resource for threshold in core.policy.thresholds}
    moving = [p for p in core.plans if p.step is not None and (not p.counted or p.resource in watched)]
    return not moving


_CALLS = {"call": "event", "attempt": "call"}
"""Where the size and the model of what is asked for stand, by the machine's event."""


def reads(core: Core, event: str) -> str:
    """The names that the lines below use, for one event of the machine."""
    call = _CALLS.get(event)
    lines = ["book = state.book", "more = book.extra"]
    if core.has_thresholds:
        lines.append("crossed, told = (0, 0) if more is None else (more.crossed, more.told)")
    if core.amounts.pools or core.has_thresholds:
        lines.append("spent = book.spent")
    if core.amounts.pools and call:
        lines.append(f"size, wanted = {call}.input_tokens or 0, {call}.max_output")
    if core.amounts.priced and call:
        lines.append(f"price = prices.get({call}.model)")
        lines.append("least = price and -(-(size * price.input + price.output) // 1_000_000)")
    return "\n".join(lines)


def near(core: Core, event: str) -> str:
    """One line for each amount that matters: true where it leaves less than a call, or a further round, must leave."""
    rules, call = core.machine.rules[event], event in _CALLS
    read = {name for rule in rules for name in names(rule.guard)}
    lines = []
    if core.amounts.pools and call:
        lines.append("or size < 0 or (wanted is not None and wanted < 1)")
    if core.amounts.priced and call:
        lines.append("or price is None or not price.output  # default: price")
    for amount in core.amounts.limits:
        if amount.plan.field not in read:
            continue
        need = _NEED.get(amount.resource, "") if call else ""
        lines.append(f"or {_used(amount.plan)}{need} {_bar(amount, call)}  # {amount.plan.origin}")
    return "\n".join(lines)


def _used(plan: Plan) -> str:
    before = f" + book.run.thread_used.{plan.resource}" if plan.limit.scope == "thread" else ""
    return _USED[plan.resource] + before + (" + book.run.stood" if plan.limit.counting_approvals else "")


def _free(amount: Amount) -> int:
    """What an ordinary call may use: all but the reserve."""
    return amount.maximum(()) - amount.kept(())


def _bar(amount: Amount, call: bool) -> str:
    # A request needs one unit at least; the size of one counts in full where it is known.
    if call and amount.resource in ("input_tokens", "cost"):
        return f"> {_free(amount)} or {_used(amount.plan)} >= {_free(amount)}"
    return f">= {_free(amount)}"


def crossed(core: Core, event: str) -> str:
    """One line for each threshold: true where it would be crossed now; and where one must be told with this call."""
    if not core.has_thresholds:
        return ""
    lines = [f"or crossed & ~told & {core.thresholds.tells}"] if event == "call" and core.thresholds.tells else []
    for bit, (threshold, limits) in enumerate(core.thresholds.all):
        parts = [_reached(plan, threshold.percent) for plan, _ in limits]
        if parts:
            origin = threshold.origin or f"at {threshold.percent}% of {threshold.resource}"
            lines.append(f"or (not crossed & {1 << bit} and ({' or '.join(parts)}))  # {origin}")
    return "\n".join(lines)


def _reached(plan: Plan, percent: int) -> str:
    if plan.counted:
        return f"{plan.fuel} <= {(100 - percent) * plan.maximum // 100}"
    return f"{_used(plan)} >= {-(-percent * plan.maximum // 100)}"


def until(core: Core) -> str:
    """The moment by which everything but the final call must be over; empty without a limit on time."""
    ends = {
        counting: min(free)
        for counting in (False, True)
        if (free := [_free(a) for a in core.amounts.walls if a.plan.limit.counting_approvals is counting])
    }
    began = {False: "book.run.started", True: "book.run.started - book.run.stood"}
    lines = [f"{began[counting]} + {free}" for counting, free in ends.items()]
    return f"min({', '.join(lines)})" if len(lines) > 1 else "".join(lines)


def output_bound(core: Core) -> str:
    """Lines that compute ``bound``, the largest output that the pools leave."""
    bounds = []
    for amount in core.amounts.pools:
        left = f"{_free(amount)} - ({_used(amount.plan)})"
        if amount.resource == "tokens":
            bounds.append(f"{left} - size")
        elif amount.resource == "output_tokens":
            bounds.append(left)
        elif amount.resource == "cost":
            bounds.append(f"({left} - {_INPUT_COST}) * 1_000_000 // price.output")
    if not bounds:
        return "bound = event.max_output"
    least = f"min({', '.join(bounds)})" if len(bounds) > 1 else bounds[0]
    return f"bound = max(1, {least})\nif wanted is not None and wanted < bound:\n    bound = wanted"
