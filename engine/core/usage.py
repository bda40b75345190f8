"""Tokens and money: what one attempt has used, and what that costs.

Exact integers only: tokens, and micro-dollars rounded up once for each attempt. It knows the
price table of a policy, not when an attempt is charged.
"""

from __future__ import annotations

from typing import Final

from engine.core.messages import Usage
from engine.core.policy import Price

_PER: Final = 1_000_000
"""Prices are for so many tokens."""


def cost(price: Price, usage: Usage) -> int:
    """What ``usage`` costs, in micro-dollars, rounded up once.

    Input read from a cache costs the cached price, or the input price where the table has none. Input written to a
    cache and output that is not shown are parts of input and output, and cost what those cost. A report of more
    cached tokens than input is read as all input being cached.
    """
    cached = min(usage.cached, usage.input)
    cached_price = price.input if price.cached is None else price.cached
    total = (usage.input - cached) * price.input + cached * cached_price + usage.output * price.output
    return -(-total // _PER)


def price_of(price: Price, input_tokens: int, output_tokens: int) -> int:
    """What so many tokens cost, none of them cached: ``cost`` of a request that has not been made."""
    return -(-(input_tokens * price.input + output_tokens * price.output) // _PER)


def plain(usage: Usage) -> bool:
    """A report without negative numbers, which no provider means."""
    return (
        usage.input >= 0 and usage.output >= 0 and usage.cached >= 0 and usage.cache_write >= 0 and usage.reasoning >= 0
    )


def largest(charged: Usage, reported: Usage) -> Usage:
    """Both reports of one attempt in one: the larger number of each category."""
    return Usage(
        max(charged.input, reported.input),
        max(charged.output, reported.output),
        max(charged.cached, reported.cached),
        max(charged.cache_write, reported.cache_write),
        max(charged.reasoning, reported.reasoning),
    )


def increase(charged: Usage, reported: Usage) -> Usage:
    """What a cumulative report adds to what has been charged for the same attempt; never negative."""
    return Usage(
        max(0, reported.input - charged.input),
        max(0, reported.output - charged.output),
        max(0, reported.cached - charged.cached),
        max(0, reported.cache_write - charged.cache_write),
        max(0, reported.reasoning - charged.reasoning),
    )


def cost_increase(price: Price, charged: Usage, reported: Usage) -> int:
    """What a cumulative report adds to the cost of its attempt, in micro-dollars; never negative.

    The increases of successive reports add up to the cost of the last one, with its one rounding. A report that
    only finds more of the same input cached takes nothing back.
    """
    return max(0, cost(price, largest(charged, reported)) - cost(price, charged))
