"""What a ledger shows one run of itself: ``Pools``, computed on the path from the run's node to the root."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from engine.core import draws
from engine.core.ledger import Ledger, wall_of
from engine.core.messages import Usage
from engine.core.policy import Price
from engine.core.pooling import Left, Node, Pool
from engine.core.state import NO_TIME, Pools, Refusal
from engine.core.usage import cost

USUAL_OUTPUT = 4_096
"""Tokens of output that a call may have where nobody asks for a maximum and others draw on the same pool: a call that
held everything would leave nothing to those beside it."""

_PER = 1_000_000
_ANY = NO_TIME


class Need(Struct, frozen=True, gc=False):
    """What the next call would use: its estimated input and largest output (tokens), at these prices."""

    input_tokens: int = 0
    output_tokens: int | None = None
    price: Price | None = None

    def least(self) -> draws.Draw:
        """The least that a pool must have for it: the call, its input, and one token of output."""
        size = self.input_tokens
        money = max(1, cost(self.price, Usage(size, 1))) if self.price else 1
        # A call needs no round and no tool: any pool of those is enough for it, also one that is overdrawn.
        return (1, 1, -_ANY, -_ANY, -_ANY, size + 1, max(1, size), 1, money)


def look(ledger: Ledger, id: str, need: Need, at: int) -> Pools:
    """What the ledger shows the present run of node ``id``, which is about to ask for a call, a tool or a spawn."""
    node = ledger.nodes[id]
    above = list(ledger.pools_above(id))
    least = need.least()
    short = (found for found in above if found.amount < least[found.pool.resource])
    full = (found for found in above if found.pool.resource == draws.TOOL_ITERATIONS and found.amount < 1)
    tools, tools_limit = _tools(above)
    deadline, wall = _wall_above(ledger, node, at)
    return Pools(
        others=tuple((p.ceiling.limit, p.others) for p in node.pools if p.others),
        refused=_first(short),
        rounds=_first(full),
        tools=tools,
        tools_limit=tools_limit,
        output=_largest_output(ledger, node, above, need),
        deadline=deadline,
        wall=wall,
        opened=node.deadline - node.budget.wall.maximum if node.budget.wall else None,
    )


def _first(found: Iterator[Left]) -> Refusal | None:
    return next((each.refusal() for each in found), None)


def _tools(above: list[Left]) -> tuple[int | None, Refusal | None]:
    pools = [found for found in above if found.pool.resource == draws.TOOL_CALLS]
    if not pools:
        return None, None
    least = min(pools, key=lambda found: found.amount)
    return max(0, least.amount), least.refusal()


def _wall_above(ledger: Ledger, node: Node, at: int) -> tuple[int, Refusal | None]:
    if not node.parent:
        return NO_TIME, None
    nearest = min(ledger.path(node.parent), key=lambda above: above.deadline)
    return (NO_TIME, None) if nearest.deadline >= NO_TIME else (nearest.deadline, wall_of(nearest, at))


def _largest_output(ledger: Ledger, node: Node, above: list[Left], need: Need) -> int | None:
    bounds = [bound for found in above if (bound := _output_of(found.pool, found.amount, need)) is not None]
    below = ledger.children(node.id)
    shared = bounds or (below and any(_output_of(pool, pool.free, need) is not None for pool in node.pools))
    if not shared:
        return None
    bounds.append(USUAL_OUTPUT if need.output_tokens is None else need.output_tokens)
    return max(1, min(bounds))


def _output_of(pool: Pool, left: int, need: Need) -> int | None:
    """The output that a pool leaves for a call of this size; ``None``: it is about something else."""
    if pool.resource == draws.TOKENS:
        return left - need.input_tokens
    if pool.resource == draws.OUTPUT_TOKENS:
        return left
    if pool.resource == draws.COST and need.price is not None and need.price.output:
        return (left - cost(need.price, Usage(need.input_tokens))) * _PER // need.price.output
    return None
