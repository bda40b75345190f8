"""What a ledger shows one run of itself: ``Pools``, computed on the path from the run's node to the root."""

from __future__ import annotations

from msgspec import Struct

from engine.core.draws import INPUT_TOKENS, OUTPUT_TOKENS, TOKENS, TOOL_CALLS, TOOL_ITERATIONS, UNKNOWN_TOOLS
from engine.core.ledger import Ledger
from engine.core.messages import Usage
from engine.core.policy import Price
from engine.core.pooling import Node, Pool, put_aside, refusal_of
from engine.core.state import NO_TIME, LimitHit, Pools, Refusal
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

    @property
    def wanted(self) -> int:
        """The output to hold for a call whose pools others draw on as well (tokens)."""
        return USUAL_OUTPUT if self.output_tokens is None else self.output_tokens

    def of(self, resource: int, free: int) -> tuple[bool, int]:
        """Is so much of tokens or money too little, with one token of output? And what output does it leave?"""
        size = self.input_tokens
        if resource == TOKENS:
            return free <= size, free - size
        if resource == OUTPUT_TOKENS:
            return free < 1, free
        if resource == INPUT_TOKENS:
            return free < max(1, size), _ANY
        price = self.price
        if price is None:
            return free < 1, _ANY
        most = (free - cost(price, Usage(size))) * _PER // price.output if price.output else _ANY
        return free < max(1, cost(price, Usage(size, 1))), most


def look(ledger: Ledger, id: str, need: Need, at: int) -> Pools:
    """What the ledger shows the present run of node ``id``, which is about to ask for a call, a tool or a spawn.

    Asked before everything that a run may start, so it is one walk up the tree and no more (``Pooling.pools_above``
    says the same at leisure). A call needs no round and no tool: however little of those is left is enough for it.
    """
    nodes = ledger.nodes
    node = nodes[id]
    others: tuple[tuple[str, int], ...] = ()
    unused: tuple[tuple[str, int], ...] = ()
    for pool in node.pools:
        if taken := pool.taken - pool.own - pool.own_held:
            others = (*others, (pool.ceiling.limit, taken))
            if held := pool.taken - pool.used - pool.own_held:
                unused = (*unused, (pool.ceiling.limit, held))
    opened = node.until(at) - node.budget.wall.maximum if node.budget.wall else None
    refused = rounds = tools = nearest = None
    tools_left, output, deadline = _ANY, _ANY, NO_TIME
    aside: list[int] | None = None
    carves, above_id = node.carves, node.parent
    while above_id:
        if carves:
            aside = put_aside(carves, aside)
        above = nodes[above_id]
        until = above.deadline if above.paused < 0 else above.until(at)
        if until < deadline:
            nearest, deadline = above, until
        for pool in above.pools:
            if not pool.shared:
                continue
            resource = pool.resource
            free = pool.maximum - pool.taken - pool.kept
            if aside is not None and (more := aside[resource]):
                free = more + free if free > 0 else more
            if resource >= TOKENS:
                short, most = need.of(resource, free)
                if most < output:
                    output = most
                if short and refused is None:
                    refused = above, pool
            elif resource == TOOL_CALLS:
                if free < tools_left:
                    tools, tools_left = (above, pool), free
            elif free < 1:
                if resource == TOOL_ITERATIONS:
                    rounds = rounds or (above, pool)
                elif resource != UNKNOWN_TOOLS:
                    refused = refused or (above, pool)
        carves, above_id = above.carves, above.parent
    # Others draw on what bounds the output: those beside the node, or its children.
    contended = output < _ANY or (node.pools and ledger.has_children(id) and _bounded(node.pools, need))
    return Pools(
        others,
        unused,
        refused and refusal_of(*refused),
        rounds and refusal_of(*rounds),
        max(0, tools_left) if tools else None,
        tools and refusal_of(*tools),
        max(1, min(output, need.wanted)) if contended else None,
        deadline,
        None if nearest is None else _wall(nearest),
        opened,
    )


def _bounded(pools: tuple[Pool, ...], need: Need) -> bool:
    return any(pool.resource >= TOKENS and need.of(pool.resource, 0)[1] < _ANY for pool in pools)


def _wall(node: Node) -> Refusal:
    """The wall as it is at its end: what is shown does not change with the time, so it need not be told again."""
    wall = node.budget.wall
    assert wall is not None
    return Refusal(LimitHit("wall", "subtree", node.id, wall.maximum, wall.maximum), wall.because)
