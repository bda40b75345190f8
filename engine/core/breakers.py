"""Circuit breakers: one small machine for each breaker and tool (or argument set), closed, open or half-open.

Pure functions over frozen records: what a breaker says of the next start, and what an outcome does to it.
It knows no rounds and no order of arrival: who calls it decides when an outcome is applied.
Times are integer milliseconds; a breaker that never opened has no time, which is never the number 0.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from engine.core.policy import Breaker

_KEY: Final = 16
"""Hex digits of a key that are remembered: 64 bits tell the arguments of one run apart, and a state stays small."""

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


class Row(Struct, frozen=True, gc=False, omit_defaults=True):
    """The failures in a row: ``last`` and ``before`` are the arguments' keys of the last two.

    ``streak`` is how often ``last`` failed in a row, ``turns`` how long the run of failures A, B, A, B… is.
    """

    last: str = ""
    before: str = ""
    streak: int = 0
    turns: int = 0


class BreakerState(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one breaker remembers of one tool, or of one argument set of it.

    ``opened`` is the time of the trip; ``probes`` twice those that succeeded since half-open, odd while one is out.
    ``failures`` counts failures in a row, ``slow`` slow executions in a row; ``window`` holds the last outcomes as bits
    (1: failed), ``seen`` how many; ``pair`` is the last pair of arguments and result, ``again`` how often it came in a
    row. What no detector of the breaker looks at stays empty.
    """

    breaker: int
    key: str
    opened: int | None = None
    probes: int = 0
    failures: int = 0
    slow: int = 0
    window: int = 0
    seen: int = 0
    row: Row | None = None
    pair: str = ""
    again: int = 0

    @property
    def probing(self) -> bool:
        """Is a probe out?"""
        return self.probes % 2 > 0


class Execution(Struct, frozen=True, gc=False, omit_defaults=True):
    """One execution that has ended, as a breaker sees it. ``args`` and ``result`` are keys, ``""`` equals nothing."""

    failed: bool
    args: str = ""
    result: str = ""
    ms: int = 0
    probe: bool = False


def position(breaker: Breaker, state: BreakerState, at: int) -> str:
    """``CLOSED``, ``OPEN``, or ``HALF_OPEN`` once the time to reset has come (inclusive)."""
    if state.opened is None:
        return CLOSED
    if breaker.reset is None or at < state.opened + breaker.reset:
        return OPEN
    return HALF_OPEN if breaker.probe else CLOSED


def admits(breaker: Breaker, state: BreakerState, at: int) -> bool:
    """May the tool start now? When half-open, one probe at a time may."""
    where = position(breaker, state, at)
    return where == CLOSED or (where == HALF_OPEN and not state.probing)


def reserved(state: BreakerState) -> BreakerState:
    """The probe is out."""
    return structs.replace(state, probes=state.probes | 1)


def released(state: BreakerState) -> BreakerState:
    """The probe was cancelled, refused or never started: another may go."""
    return structs.replace(state, probes=state.probes & ~1)


def record(breaker: Breaker, state: BreakerState, done: Execution, at: int) -> BreakerState:
    """What an execution's outcome does to a breaker. ``opened`` differs afterwards exactly when it has tripped."""
    if state.opened is None:
        return _observed(breaker, state, done, at)
    if done.probe and state.probing:
        return _probed(breaker, state, done, at)
    if position(breaker, state, at) != CLOSED:
        # It was in flight when the breaker opened: a success does not close it, a failure does not move its time.
        return state
    return _observed(breaker, BreakerState(state.breaker, state.key), done, at)


def _probed(breaker: Breaker, state: BreakerState, done: Execution, at: int) -> BreakerState:
    if done.failed:
        return BreakerState(state.breaker, state.key, opened=at)
    succeeded = state.probes // 2 + 1
    if succeeded >= (breaker.probe or 1):
        return BreakerState(state.breaker, state.key)
    return structs.replace(state, probes=2 * succeeded)


def _observed(breaker: Breaker, state: BreakerState, done: Execution, at: int) -> BreakerState:
    """The state with one more outcome in what its detectors look at; open, if one of them trips by it."""
    failed, trips = done.failed, False
    failures = slow = window = seen = again = 0
    row, pair = None, ""
    for detector in breaker.trips:
        kind, n = detector.kind, detector.n
        if kind == "same_args" or kind == "alternating":
            if failed:
                row = row or _repeated(state.row, done.args[:_KEY])
                trips = trips or (row.streak if kind == "same_args" else row.turns) >= n
        elif kind == "failures":
            failures = state.failures + 1 if failed else 0
            trips = trips or failures >= n
        elif kind == "failure_rate":
            window, seen = (state.window << 1 | failed) & ((1 << n) - 1), min(state.seen + 1, n)
            trips = trips or (seen >= n and window.bit_count() * 100 >= (detector.percent or 0) * n)
        elif kind == "same_result":
            pair = f"{done.args[:_KEY]}{done.result[:_KEY]}" if done.args and done.result else ""
            again = state.again + 1 if pair and pair == state.pair else 1
            trips = trips or (bool(pair) and again >= n)
        else:
            slow = state.slow + 1 if done.ms >= (detector.ms or 0) else 0
            trips = trips or slow >= n
    opened = at if trips else None
    return BreakerState(state.breaker, state.key, opened, 0, failures, slow, window, seen, row, pair, again)


def _repeated(known: Row | None, args: str) -> Row:
    """One failure more; ``args`` is the key of its arguments, "" equals nothing."""
    if known is None:
        return Row(args, "", 1, 1)
    if args and args == known.last:
        return Row(args, known.last, known.streak + 1, 1)
    turns = known.turns + 1 if known.turns > 1 and args and args == known.before else 2
    return Row(args, known.last, 1, turns)
