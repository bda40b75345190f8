"""Waits before further attempts, as frameworks write them: a first wait, a factor, a longest wait.

Here waits double from a lower bound to an upper one. What is not a doubling is told.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, NamedTuple

from policy_lang.importing.framework import Import
from policy_lang.importing.values import Odd, Value
from policy_lang.quantities import duration_text

_SECOND: Final = 1_000


class Waits(NamedTuple):
    """How often and after which waits; ``None`` where the file says nothing. The numbers are a framework's defaults:
    retries, and milliseconds."""

    times: Value | None = None
    first: Value | None = None
    longest: Value | None = None
    factor: Value | None = None
    jitter: Value | None = None
    default_times: int = 0
    default_first: int | None = None
    default_longest: int | None = None
    default_jitter: bool = False


def retry_step(into: Import, waits: Waits) -> str:
    """The step `retry N every A..B`; ``""`` if nothing is tried again, or something is wrong and was told."""
    times = waits.default_times
    if waits.times is not None and waits.times.data is not None:
        judged = into.number(waits.times)
        if judged is None:
            return ""
        times = judged
    if not times:
        if waits.times is not None:
            into.same(waits.times, "nothing is tried again unless the policy says so")
        return ""
    first = _wait(into, waits.first, waits.default_first)
    longest = _wait(into, waits.longest, waits.default_longest)
    if _constant(into, waits.factor):
        longest = first
    every = ""
    if first is not None or longest is not None:
        least = first if first is not None else min(_SECOND, longest or _SECOND)
        most = max(least, longest if longest is not None else max(30 * _SECOND, least))
        every = f" every {duration_text(max(1, least))}..{duration_text(max(1, most))}"
    jitter = waits.default_jitter
    if waits.jitter is not None and isinstance(waits.jitter.data, bool):
        jitter = waits.jitter.data
    return f"retry {times}{every}{' jitter' if jitter and every else ''}"


def _wait(into: Import, value: Value | None, default: int | None) -> int | None:
    if value is None or value.data is None:
        return default
    return into.milliseconds(value)


def _constant(into: Import, factor: Value | None) -> bool:
    """Is the wait always the first one? A factor that is neither that nor a doubling is told as lost."""
    if factor is None or factor.data is None:
        return False
    number = factor.data
    if isinstance(number, bool) or not isinstance(number, (int, Decimal)) or isinstance(number, Odd):
        into.milliseconds(factor)  # tells what is wrong
        return False
    if number not in (0, 1, 2):
        into.lose(factor, "waits double here, from the first to the longest")
    return number in (0, 1)
