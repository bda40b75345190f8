"""The breakers of one policy over the tools of one run: verdicts, probes, and outcomes applied in order.

States live in the run's book, sorted by breaker and key; a tool that nothing happened to has none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from engine.core.breakers import (
    HALF_OPEN,
    BreakerState,
    Execution,
    admits,
    position,
    record,
    released,
    reserved,
)
from engine.core.decisions import Note
from engine.core.machine.failure_plan import breaker_origin, breakers_of
from engine.core.machine.tool_rules import ending
from engine.core.policy import Breaker, Policy
from engine.core.state import RoundCall, ToolExtra, with_extra

MAX_ARGUMENT_SETS = 64
"""Argument sets that one ``per args`` breaker remembers of one tool; with more, the tool itself trips."""

States = tuple[BreakerState, ...]

_FEW = 8
"""So many states are looked through from the first one: that takes less time than to halve them."""

_NOTHING = ToolExtra()


class BreakerTable:
    """See the module. An index names a breaker in the machine's order."""

    def __init__(self, policy: Policy) -> None:
        self.all = breakers_of(policy)
        self.at_once = any(breaker.apply == "now" for breaker in self.all)
        """Does one of them act before its round is complete?"""
        self._ending = [ending(breaker) for breaker in self.all]

    def verdict(self, states: States, matching: tuple[int, ...], tool: str, args: str, at: int) -> tuple[int, int]:
        """The machine's field ``broken`` for a call that would start now, and the breaker that decides (-1: none)."""
        skipped = -1
        for index in matching:
            if not all(admits(self.all[index], state, at) for state in self._seen(states, index, tool, args)):
                if self._ending[index]:
                    return index + 2, index
                skipped = index if skipped < 0 else skipped
        return int(skipped >= 0), skipped

    def reserve(
        self, states: States, matching: tuple[int, ...], tool: str, args: str, at: int
    ) -> tuple[States, tuple[int, ...]]:
        """The states with a probe out for every matching breaker that is half-open, and which those are."""
        probes = []
        for index in matching:
            for state in self._seen(states, index, tool, args):
                if position(self.all[index], state, at) == HALF_OPEN:
                    states = _put(states, reserved(state))
                    probes.append(index)
        return states, tuple(dict.fromkeys(probes))

    def release(self, states: States, call: RoundCall) -> States:
        """The probes of a call that was cancelled, refused or never started are given back."""
        for index in call.probes:
            for state in self._seen(states, index, call.tool, call.args):
                states = _put(states, released(state))
        return states

    def apply(
        self, states: States, calls: Iterable[tuple[RoundCall, tuple[int, ...]]], at: int, when: str
    ) -> tuple[States, tuple[Note, ...]]:
        """Apply the outcomes of ended calls, in order, to the breakers that act at ``when``; note the trips."""
        notes: list[Note] = []
        for call, matching in calls:
            for index in matching:
                breaker = self.all[index]
                if breaker.apply == when:
                    states = self._outcome(states, index, breaker, call, at, notes)
        return states, tuple(notes)

    def apply_alone(
        self, states: States, matching: tuple[int, ...], tool: str, done: Execution, at: int
    ) -> tuple[States, tuple[Note, ...]]:
        """The same for one execution that every matching breaker counts, and that was the probe of none."""
        notes: list[Note] = []
        for index in matching:
            breaker = self.all[index]
            own = self._kept_under(states, index, breaker, tool, done.args) if breaker.per_args else tool
            states = _recorded(states, index, own, breaker, done, at, tool, notes)
        return states, tuple(notes)

    def _outcome(
        self, states: States, index: int, breaker: Breaker, call: RoundCall, at: int, notes: list[Note]
    ) -> States:
        extra = call.extra or _NOTHING
        failed, probe = _failed(breaker, extra.outcome), index in extra.probes
        if failed is None:
            return self.release(states, with_extra(call, probes=(index,))) if probe else states
        own = self._kept_under(states, index, breaker, call.tool, call.args) if breaker.per_args else call.tool
        done = Execution(failed, call.args, extra.result, extra.ended - call.started, probe)
        states = _recorded(states, index, own, breaker, done, at, call.tool, notes)
        if probe:
            # A probe may be the tool's and not its argument set's: whoever waits for it learns how it went.
            for state in self._seen(states, index, call.tool, call.args):
                if state.probing and state.key != own:
                    states = _recorded(states, index, state.key, breaker, done, at, call.tool, notes)
        return states

    def _kept_under(self, states: States, index: int, breaker: Breaker, tool: str, args: str) -> str:
        """The key under which an outcome is remembered: its argument set's, or its tool's if there is no room."""
        key = _key(breaker, tool, args)
        if key == tool or _find(states, index, key) is not None:
            return key
        sets = sum(s.breaker == index and s.key.startswith(f"{tool} ") for s in states)
        return tool if sets >= MAX_ARGUMENT_SETS else key

    def _seen(self, states: States, index: int, tool: str, args: str) -> list[BreakerState]:
        """What a breaker remembers of this call: of the tool, and of the argument set where it tells them apart."""
        keys = {tool, _key(self.all[index], tool, args)}
        return [state for key in keys if (state := _find(states, index, key)) is not None]

    def hidden(self, states: States, at: int) -> tuple[str, ...]:
        """Tools that are not declared to the model now."""
        return tuple(
            sorted(
                {
                    s.key
                    for s in states
                    if self.all[s.breaker].when_open == "hide"
                    and not self.all[s.breaker].per_args
                    and not admits(self.all[s.breaker], s, at)
                }
            )
        )


def _recorded(
    states: States,
    index: int,
    key: str,
    breaker: Breaker,
    done: Execution,
    at: int,
    tool: str,
    notes: list[Note],
) -> States:
    """The states with what an execution's outcome does to one of them."""
    place, known = _sought(states, index, key)
    nothing = BreakerState(index, key)
    state = nothing if known is None else known
    after = record(breaker, state, done, at)
    if after.opened is not None and after.opened != state.opened:
        notes.append(_tripped(breaker, tool))
    return _stored(states, place, known, after, nothing)


def _failed(breaker: Breaker, outcome: str) -> bool | None:
    """Did the execution fail, as this breaker counts? ``None``: it counts for nothing."""
    if outcome in ("failed", "timed_out"):
        return True
    if outcome == "ok":
        return False
    if outcome == "denied" and breaker.count_denied != "nothing":
        return breaker.count_denied == "failure"
    return None


def _key(breaker: Breaker, tool: str, args: str) -> str:
    return f"{tool} {args[:16]}" if breaker.per_args and args else tool


def _tripped(breaker: Breaker, tool: str) -> Note:
    return Note("tripped", f"{tool} is switched off", because=breaker_origin(breaker))


def _find(states: States, breaker: int, key: str) -> BreakerState | None:
    return _sought(states, breaker, key)[1]


def _sought(states: States, breaker: int, key: str) -> tuple[int, BreakerState | None]:
    """Where the state of a breaker and key stands, or would stand, and what stands there under that name."""
    place = bisect_left(states, (breaker, key), key=_order) if len(states) > _FEW else 0
    for state in states[place:] if place else states:
        if state.breaker == breaker and state.key == key:
            return place, state
        if state.breaker > breaker or (state.breaker == breaker and state.key > key):
            return place, None
        place += 1
    return place, None


def _put(states: States, state: BreakerState) -> States:
    place, known = _sought(states, state.breaker, state.key)
    return _stored(states, place, known, state, BreakerState(state.breaker, state.key))


def _stored(
    states: States, place: int, known: BreakerState | None, state: BreakerState, nothing: BreakerState
) -> States:
    """The states with this one at its place, where ``known`` has stood; ``nothing`` is one that remembers nothing."""
    # That need not be remembered: 64 sets of arguments that work leave room for one that fails.
    new = () if state == nothing else (state,)
    if known is None:
        return states[:place] + new + states[place:] if new else states
    return states[:place] + new + states[place + 1 :]


def _order(state: BreakerState) -> tuple[int, str]:
    return (state.breaker, state.key)
