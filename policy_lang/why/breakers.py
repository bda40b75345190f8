"""Where a breaker stands with one tool: closed and how near to opening, open until when, or half-open.

Reads what breakers remember; decides nothing.
"""

from __future__ import annotations

from engine.core.breakers import CLOSED, OPEN, BreakerState, position
from engine.core.core import Core
from engine.core.learning import breakers_of as watching
from engine.core.policy import Breaker, Detector
from engine.core.state import RoundCall, State
from engine.core.texts import duration

NOTHING_SEEN = "closed (nothing counts)"
"""What is said of a breaker that remembers nothing."""


def standing(breaker: Breaker, state: BreakerState, at: int) -> str:
    """Where it stands at ``at`` (ms), in half a sentence."""
    where = position(breaker, state, at)
    if where == CLOSED:
        near = [] if state.opened is not None else [_near(detector, state) for detector in breaker.trips]
        said = ", ".join(part for part in near if part)
        return f"closed ({said})" if said else NOTHING_SEEN
    opened = state.opened or 0
    since = f"{duration(at - opened)} ago" if at > opened else "just now"
    if where == OPEN:
        if breaker.reset is None:
            return f"open for the rest of the run, having tripped {since}"
        return f"open for {duration(opened + breaker.reset - at)} more, having tripped {since}"
    tried = "one execution is being tried" if state.probing else "one execution at a time is tried"
    return f"half-open, {tried} ({state.probes // 2} of {breaker.probe} have succeeded)"


def _near(detector: Detector, state: BreakerState) -> str:
    """How near a detector is to its trip; empty where it has seen nothing."""
    n, row = detector.n, state.row
    match detector.kind:
        case "same_args":
            return f"{row.streak} of {n} failures in a row with the same arguments" if row else ""
        case "alternating":
            return f"{row.turns} of {n} failures in a row that alternate" if row and row.turns > 1 else ""
        case "failures":
            return f"{state.failures} of {n} failures in a row" if state.failures else ""
        case "failure_rate":
            return (
                f"{state.window.bit_count()} of the last {state.seen} failed, {n} are looked at" if state.seen else ""
            )
        case "same_result":
            return f"{state.again} of {n} times the same result of the same arguments" if state.again else ""
        case "slow":
            return f"{state.slow} of {n} slow executions in a row" if state.slow else ""


def seen_of(core: Core, state: State, tool: str, args: str, at: int, kind: str = "") -> str:
    """What the breakers that watch a call say of it, in a sentence."""
    matching = watching(core, RoundCall("", tool, args, 0)) if kind != "agent" else ()
    if not matching:
        return f"no breaker watches `{tool}`"
    said = []
    for index in matching:
        known = [s for s in state.book.breakers if s.breaker == index and s.key in (tool, f"{tool} {args[:16]}")]
        places = [f"{_whose(s, tool)}is {standing(core.breakers.all[index], s, at)}" for s in known]
        said += places or [f"the breaker of `{tool}` is {NOTHING_SEEN}"]
    return " and ".join(said)


def _whose(state: BreakerState, tool: str) -> str:
    arguments = "" if state.key == tool else " with these arguments"
    return f"the breaker of `{tool}`{arguments} "
