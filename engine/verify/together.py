"""Which classes of tokens and money a run can be in at the same time: there must be numbers that are in all of them.

Tokens are those of input and those of output. What they cost is at most their number times the dearest price, and for
each attempt rounded up to a whole micro-dollar; it may be nothing, for a cached token or a model may have no price.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from engine.core.machine.claim_amounts import Classes
from engine.core.policy import Price

_MILLION = 1_000_000

_MOST = 1 << 200
"""More than is ever used."""


def together(amounts: Sequence[Classes], prices: Sequence[Price]) -> Iterator[tuple[int, ...]]:
    """A class of each amount, for all choices that are possible; amounts of tokens and money only."""
    for chosen in itertools.product(*(range(len(classes.starts)) for classes in amounts)):
        ranges = {
            classes.resource: (classes.starts[place], _MOST if (end := classes.end(place)) is None else end)
            for classes, place in zip(amounts, chosen, strict=True)
        }
        if _possible(ranges, prices):
            yield chosen


def _possible(ranges: dict[str, tuple[int, int]], prices: Sequence[Price]) -> bool:
    least, most = {}, {}
    for name in ("input_tokens", "output_tokens", "tokens", "cost"):
        least[name], most[name] = ranges.get(name, (0, _MOST))
    fewest = max(least["tokens"], least["input_tokens"] + least["output_tokens"])
    all_of_them = min(most["tokens"], most["input_tokens"] + most["output_tokens"])
    if fewest > all_of_them:
        return False
    output = min(most["output_tokens"], all_of_them - least["input_tokens"])
    input = min(most["input_tokens"], all_of_them - least["output_tokens"])
    return least["cost"] <= _dearest(input, output, all_of_them, prices)


def _dearest(input: int, output: int, tokens: int, prices: Sequence[Price]) -> int:
    """The most (micro-dollars) that so many tokens may cost, of which at most so many are of each kind."""
    most = 0
    for price in prices:
        each = max(price.input, price.cached or 0)
        most = max(most, min(input * each + output * price.output, tokens * max(each, price.output)))
    return most // _MILLION + tokens if prices else 0
