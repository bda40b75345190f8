"""What breakers learn of tool calls: how executions ended, and which of them go on as a probe.

Section 7 of the semantics. ``breaker_table`` knows breakers and no rounds; here the calls of a round are told to it, in
the model's order.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

from engine.core.breaker_table import States
from engine.core.breakers import Execution
from engine.core.core import Core
from engine.core.decisions import Note
from engine.core.events import ToolEnded
from engine.core.state import (
    ENDED,
    NO_TIME,
    NOTHING_MORE,
    REPLIED,
    Book,
    BookExtra,
    RoundCall,
    State,
    ToolExtra,
    with_extra,
)

COUNTED: Final = ("ok", "failed", "timed_out")
"""Ends of executions that every breaker counts, as success or failure."""


def breakers_of(core: Core, call: RoundCall) -> tuple[int, ...]:
    """The breakers that watch the call: none watches a delegation."""
    return () if call.kind == "agent" else core.tools.facts(call.tool).breakers


def tripped_since(core: Core, s: State, call: RoundCall, matching: tuple[int, ...], at: int) -> tuple[int, int]:
    """The verdict of the breakers with ``apply now`` that opened since this call was judged, save for its probes."""
    others = tuple(i for i in matching if core.breakers.all[i].apply == "now" and i not in call.probes)
    return core.breakers.verdict(s.book.breakers, others, call.tool, call.args, at)


def reserved(core: Core, s: State, call: RoundCall, at: int) -> tuple[State, RoundCall]:
    """A call that goes on is the probe of every breaker that has become half-open since it was judged."""
    matching = tuple(i for i in breakers_of(core, call) if i not in call.probes)
    states, probes = core.breakers.reserve(s.book.breakers, matching, call.tool, call.args, at)
    if not probes:
        return s, call
    return with_breakers(s, states), with_extra(call, probes=(*call.probes, *probes))


def with_breakers(s: State, states: States) -> State:
    """The state with what breakers remember by now."""
    if states is s.book.breakers:
        return s
    return State(s.vars, s.at, s.n, s.call, s.round, _with_breakers(s.book, states))


def _with_breakers(book: Book, states: States) -> Book:
    extra = BookExtra(breakers=states) if book.extra is None else structs.replace(book.extra, breakers=states)
    usual = not states and extra == NOTHING_MORE
    return Book(book.run, book.spent, None if usual else extra)


def with_outcome(call: RoundCall, e: ToolEnded) -> RoundCall:
    """The call with what its breakers will be told."""
    if call.extra is None:
        extra = ToolExtra("", e.at, e.status, e.result)
        return RoundCall(call.id, call.tool, call.args, call.status, call.attempt, NO_TIME, call.started, extra)
    return with_extra(call, ended=e.at, outcome=e.status, result=e.result)


def learn(core: Core, s: State, calls: tuple[RoundCall, ...], at: int, when: str) -> tuple[State, tuple[Note, ...]]:
    """Tell the breakers how these calls ended, in the model's order; what never ran gives its probe back."""
    book = s.book
    ended = [(call, breakers_of(core, call)) for call in calls if call.status == ENDED or call.outcome]
    states, notes = core.breakers.apply(book.breakers, ended, at, when)
    if when == "round_end":
        for call in calls:
            if call.extra is not None and call.probes and call.status == REPLIED and not call.outcome:
                states = core.breakers.release(states, call)
    return with_breakers(s, states), notes


def learn_alone(
    core: Core, book: Book, matching: tuple[int, ...], call: RoundCall, e: ToolEnded
) -> tuple[Book, tuple[Note, ...]]:
    """Tell the breakers that match it how the only call of its round has ended: it counts, and was no probe."""
    states = () if book.extra is None else book.extra.breakers
    done = Execution(e.status != "ok", call.args, e.result, e.at - call.started)
    after, notes = core.breakers.apply_alone(states, matching, call.tool, done, e.at)
    return (book if after is states else _with_breakers(book, after)), notes


def learnt(calls: tuple[RoundCall, ...]) -> tuple[RoundCall, ...]:
    """The calls of a round that may go on, without what breakers have been told: they are told once."""
    told = [with_extra(c, outcome="", probes=()) if c.outcome or c.probes else c for c in calls]
    return tuple(told)
