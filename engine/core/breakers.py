"""Circuit breakers: one small machine for each breaker and tool (or argument set), closed, open or half-open.

Pure functions over frozen records: what a breaker says of the next start, and what an outcome does to it.
It knows no rounds and no order of arrival: who calls it decides when an outcome is applied.
Times are integer milliseconds; a breaker that never opened has no time, which is never the number 0.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, structs

from engine.core.policy import Breaker, Detector

_KEY: Final = 16
"""Hex digits of a key that are remembered: 64 bits tell the arguments of one run apart, and a state stays small."""

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half_open"


class BreakerState(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one breaker remembers of one tool, or of one argument set of it.

    ``opened`` is the time of the trip; ``probing`` that a probe is out, ``probed`` how many succeeded since half-open.
    ``last`` and ``before`` are the keys of the last two failures, ``streak`` how often ``last`` failed in a row,
    ``turns`` how long the run of failures A, B, A, B… is; ``failures`` counts failures in a row, ``window`` holds the
    last outcomes as bits (1: failed), ``seen`` how many; ``result`` is the last pair of arguments and result, ``again``
    how often it came in a row; ``slow`` counts slow executions in a row.
    """

    breaker: int
    key: str
    opened: int | None = None
    probing: bool = False
    probed: int = 0
    last: str = ""
    before: str = ""
    streak: int = 0
    turns: int = 0
    failures: int = 0
    window: int = 0
    seen: int = 0
    result: str = ""
    again: int = 0
    slow: int = 0


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
    return structs.replace(state, probing=True)


def released(state: BreakerState) -> BreakerState:
    """The probe was cancelled, refused or never started: another may go."""
    return structs.replace(state, probing=False)


def record(breaker: Breaker, state: BreakerState, done: Execution, at: int) -> BreakerState:
    """What an execution's outcome does to a breaker. ``opened`` differs afterwards exactly when it has tripped."""
    where = position(breaker, state, at)
    if done.probe and state.probing:
        return _probed(breaker, state, done, at)
    if where != CLOSED:
        # It was in flight when the breaker opened: a success does not close it, a failure does not move its time.
        return state
    if state.opened is not None:
        state = BreakerState(state.breaker, state.key)
    state = _observed(breaker, state, done)
    return structs.replace(state, opened=at) if any(_trips(d, state) for d in breaker.trips) else state


def _probed(breaker: Breaker, state: BreakerState, done: Execution, at: int) -> BreakerState:
    if done.failed:
        return BreakerState(state.breaker, state.key, opened=at)
    if state.probed + 1 >= (breaker.probe or 1):
        return BreakerState(state.breaker, state.key)
    return structs.replace(state, probing=False, probed=state.probed + 1)


def _observed(breaker: Breaker, state: BreakerState, done: Execution) -> BreakerState:
    """The state with one more outcome in what its detectors look at; what none looks at stays empty."""
    changes: dict[str, object] = {}
    for detector in breaker.trips:
        changes |= _OBSERVE[detector.kind](detector, state, done)
    return structs.replace(state, **changes)


def _failed_arguments(detector: Detector, state: BreakerState, done: Execution) -> dict[str, object]:
    if not done.failed:
        return {"last": "", "before": "", "streak": 0, "turns": 0}
    args, turns = done.args[:_KEY], 1
    same = bool(args) and args == state.last
    if state.turns and not same:
        turns = state.turns + 1 if state.turns > 1 and args and args == state.before else 2
    return {"last": args, "before": state.last, "streak": state.streak + 1 if same else 1, "turns": turns}


def _failures(detector: Detector, state: BreakerState, done: Execution) -> dict[str, object]:
    return {"failures": state.failures + 1 if done.failed else 0}


def _rate(detector: Detector, state: BreakerState, done: Execution) -> dict[str, object]:
    window = (state.window << 1 | done.failed) & ((1 << detector.n) - 1)
    return {"window": window, "seen": min(state.seen + 1, detector.n)}


def _results(detector: Detector, state: BreakerState, done: Execution) -> dict[str, object]:
    pair = f"{done.args[:_KEY]}{done.result[:_KEY]}" if done.args and done.result else ""
    return {"result": pair, "again": state.again + 1 if pair and pair == state.result else 1}


def _slow(detector: Detector, state: BreakerState, done: Execution) -> dict[str, object]:
    return {"slow": state.slow + 1 if done.ms >= (detector.ms or 0) else 0}


_OBSERVE: Final = {
    "same_args": _failed_arguments,
    "alternating": _failed_arguments,
    "failures": _failures,
    "failure_rate": _rate,
    "same_result": _results,
    "slow": _slow,
}


def _trips(detector: Detector, state: BreakerState) -> bool:
    match detector.kind:
        case "same_args":
            return state.streak >= detector.n
        case "alternating":
            return state.turns >= detector.n
        case "failures":
            return state.failures >= detector.n
        case "failure_rate":
            failed = state.window.bit_count()
            return state.seen >= detector.n and failed * 100 >= (detector.percent or 0) * detector.n
        case "same_result":
            return bool(state.result) and state.again >= detector.n
        case "slow":
            return state.slow >= detector.n
