"""What a ledger shows one run of itself: ``Pools``, computed on the path from the run's node to the root."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from engine.core import draws
from engine.core.draws import COST, OUTPUT_TOKENS, TOKENS, TOOL_CALLS
from engine.core.ledger import Ledger
from engine.core.policy import Price
from engine.core.pooling import NOTHING_SHOWN, Node, Pool, Shown, left_by, put_aside, refusal_of
from engine.core.state import NO_TIME, LimitHit, Pools, Refusal
from engine.core.usage import price_of

USUAL_OUTPUT = 4_096
"""Tokens of output that a call may have where nobody asks for a maximum and others draw on the same pool: a call that
held everything would leave nothing to those beside it."""

_PER = 1_000_000
_ANY = NO_TIME

_Above = tuple[Sequence[int], tuple[Node, Pool] | None, Node | None, int]


class Need(Struct, frozen=True, gc=False):
    """What the next call would use: its estimated input and largest output (tokens), at these prices."""

    input_tokens: int = 0
    output_tokens: int | None = None
    price: Price | None = None

    def afford(self, money: int) -> tuple[bool, int]:
        """Is so much money enough for a call with one token of output? And for how much output?"""
        price = self.price
        if price is None:
            return money > 0, _ANY
        read, written = self.input_tokens * price.input, price.output
        enough = money > 0 and money * _PER >= read + written
        return enough, (money - price_of(price, self.input_tokens, 0)) * _PER // written if written else _ANY

    def least(self) -> Sequence[int]:
        """With less than this of what calls draw on there can be none; of the rest, any amount is enough."""
        size, price = self.input_tokens, self.price
        money = 1 if price is None else max(1, price_of(price, size, 1))
        never = -_ANY
        return 1, 1, never, never, never, size + 1, max(1, size), 1, money

    def held(self, output: int) -> int:
        """The output to hold for a call whose pools others draw on as well, where so much is left."""
        wanted = USUAL_OUTPUT if self.output_tokens is None else self.output_tokens
        least = output if output < wanted else wanted
        return least if least > 1 else 1


def look(ledger: Ledger, id: str, need: Need, at: int) -> Pools:
    """What the ledger shows the present run of node ``id``, which is about to ask for a call, a tool or a spawn.

    Asked before everything that a run may start: one walk up the tree finds the least that is left of each resource,
    which tells almost everything. Whose pool refuses is looked up where one does. A call needs no round and no tool:
    however little of those is left is enough for it.
    """
    node = ledger.nodes[id]
    shown, wall = node.shown, node.budget.wall
    left, executions, walled, deadline = _above(ledger, node, at) if node.parent else _NOTHING_ABOVE
    calls, attempts, rounds, tools, _, tokens, inputs, output, money = left
    size = need.input_tokens
    short = calls < 1 or attempts < 1 or tokens <= size or inputs < size or inputs < 1 or output < 1
    if tokens < _ANY and tokens - size < output:
        output = tokens - size
    if money < _ANY:
        enough, most = need.afford(money)
        short, output = short or not enough, most if most < output else output
    # Others draw on what bounds the output: those beside the node, or its children.
    contended = output < _ANY or (_bounded(shown, need) and ledger.has_children(id))
    return Pools(
        shown.others,
        shown.aside,
        _refusal(ledger, node, need.least()) if short else None,
        _refusal(ledger, node, _A_ROUND) if rounds < 1 else None,
        None if executions is None else tools if tools > 0 else 0,
        None if executions is None else refusal_of(*executions),
        need.held(output) if contended else None,
        deadline,
        None if walled is None else _wall(walled),
        None if wall is None else node.until(at) - wall.maximum,
    )


_A_ROUND = tuple(1 if name == "tool_iterations" else -_ANY for name in draws.RESOURCES)
_NOTHING_ABOVE: _Above = NOTHING_SHOWN.left, None, None, NO_TIME


def _above(ledger: Ledger, node: Node, at: int) -> _Above:
    """The least that is left above of each resource, which pool leaves least tool calls, and the nearest wall."""
    nodes = ledger.nodes
    left: list[int] = []
    executions = walled = aside = None
    deadline = NO_TIME
    while node.parent:
        if node.carves:
            aside = put_aside(node.carves, aside)
        node = nodes[node.parent]
        until = node.deadline if node.paused < 0 else node.until(at)
        if until < deadline:
            walled, deadline = node, until
        shown = node.shown
        if not left and aside is None:
            left = [*shown.left]
            if shown.executions >= 0:
                executions = node, node.pools[shown.executions]
            continue
        left = left or [*NOTHING_SHOWN.left]
        for resource in shown.limited:
            free = shown.left[resource]
            if aside is not None and (more := aside[resource]):
                free = more + free if free > 0 else more
            if free < left[resource]:
                left[resource] = free
                if resource == TOOL_CALLS:
                    executions = node, node.pools[shown.executions]
    return left, executions, walled, deadline


def _refusal(ledger: Ledger, node: Node, least: Sequence[int]) -> Refusal | None:
    """The nearest pool above that leaves less than this of its resource."""
    aside = None
    while node.parent:
        if node.carves:
            aside = put_aside(node.carves, aside)
        node = ledger.nodes[node.parent]
        left = node.shown.left
        for resource in node.shown.limited:
            if left[resource] < least[resource] and (refused := _short(node, aside, least)) is not None:
                return refused
    return None


def _short(node: Node, aside: list[int] | None, least: Sequence[int]) -> Refusal | None:
    """The first pool of a node that leaves less than this of its resource."""
    left = node.shown.left
    for pool in node.pools:
        needed = least[pool.resource]
        if left[pool.resource] < needed and pool.shared and left_by(pool, aside) < needed:
            return refusal_of(node, pool)
    return None


def _bounded(shown: Shown, need: Need) -> bool:
    """Does a pool of the node bound the output of its calls?"""
    left, price = shown.left, need.price
    if left[TOKENS] < _ANY or left[OUTPUT_TOKENS] < _ANY:
        return True
    return left[COST] < _ANY and price is not None and price.output > 0


def _wall(node: Node) -> Refusal:
    """The wall as it is at its end: what is shown does not change with the time, so it need not be told again."""
    wall = node.budget.wall
    assert wall is not None
    return Refusal(LimitHit("wall", "subtree", node.id, wall.maximum, wall.maximum), wall.because)
