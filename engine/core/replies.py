"""Replies and failures: usage first, then deadlines, then the content.

Sections 4 and 5 of the semantics.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, Core, Values
from engine.core.decisions import Illegal, Note, Reply, Wait
from engine.core.ends import Result, charge_late, closing, end, ended_in_flight, wake_at
from engine.core.events import AWAITED, ModelFailed, ModelReplied, Proposed, UsageReported
from engine.core.failing import fail, retry
from engine.core.machine.machine import Phase
from engine.core.rounds import propose
from engine.core.state import WAITING, Book, CallState, Failure, RoundCall, State, with_extra
from engine.core.vocabulary import MAX_PAUSES

_ESTIMATED = Note("estimated", "the provider reported no usage: charged the host's estimate")


def model_replied(core: Core, s: State, e: ModelReplied) -> Result:
    """An attempt succeeded."""
    call = s.call
    if s.vars[PHASE] != Phase.CALLING or call is None or call.id != e.call or call.attempt != e.attempt:
        return _late(core, s, e)
    s, notes = charged_for(core, s, e, call)
    call = s.call or call  # a further attempt remembers what was charged for this one, should it be told again
    v, functions = s.vars, e.calls
    if core.amounts.metered and e.usage is None and call.charged is None:
        v, rule = core.react.unmetered(v)
        return end(core, s, e.at, v, rule, ref=e.ref, close=_closed(e.calls))
    if functions:
        v, functions, output, extended = sorted_out(core, s, e)
        notes = (*notes, *extended) if extended else notes
        if output:
            return _answered(core, s, e, v, notes, _closed(functions))
    if e.finish == "pause" and not functions:
        return _paused(core, s, e, v, call, notes)
    if e.finish == "length" and not e.text and all(c.problem for c in functions):
        return fail(core, s, e.at, v, Failure("truncated", ref=e.ref), notes, _closed(functions))
    if functions:
        result = propose(core, s, e.at, v, functions, e.ref)
        return result if not notes else (result[0], structs.replace(result[1], notes=(*notes, *result[1].notes)))
    if e.text:
        return _answered(core, s, e, v, notes)
    if e.finish == "content_filter":
        return fail(core, s, e.at, v, Failure(e.finish, ref=e.ref), notes)
    v, rule = core.react.empty(v)
    if rule.effect.kind == "retry":
        return retry(s, e.at, v, call, rule.origin, notes, e.at)
    return end(core, s, e.at, v, rule, notes, ref=e.ref)


def model_failed(core: Core, s: State, e: ModelFailed) -> Result:
    """An attempt failed."""
    call = s.call
    if s.vars[PHASE] != Phase.CALLING or call is None or call.id != e.call or call.attempt != e.attempt:
        return _late(core, s, e)
    s, notes = charged_for(core, s, e, call)
    failure = Failure(e.reason, 0, e.retry_after, e.jitter, e.partial == "delivered", e.ref)
    return fail(core, s, e.at, s.vars, failure, notes)


def _answered(
    core: Core, s: State, e: ModelReplied, v: Values, notes: tuple[Note, ...], close: tuple[Reply, ...] = ()
) -> Result:
    v, rule = core.react.answered(v)
    return end(core, s, e.at, v, rule, notes, ref=e.ref, close=close)


def _paused(core: Core, s: State, e: ModelReplied, v: Values, call: CallState, notes: tuple[Note, ...]) -> Result:
    v, rule = core.react.paused(v, int(call.pauses < MAX_PAUSES))
    if rule.effect.kind == "retry":
        return retry(s, e.at, v, with_extra(call, pauses=call.pauses + 1), rule.origin, notes, e.at)
    return fail(core, s, e.at, v, Failure("truncated", ref=e.ref), notes)


def sorted_out(core: Core, s: State, e: ModelReplied) -> tuple[Values, tuple[Proposed, ...], bool, tuple[Note, ...]]:
    """Count what the provider executed itself; return the function calls, and whether an answer is among the rest."""
    v = s.vars
    notes: tuple[Note, ...] = ()
    for call in e.calls:
        if call.kind in ("hosted", "output"):
            break
    else:
        return v, e.calls, False, ()
    for call in e.calls:
        kind = "again" if call.kind == "hosted" else ""
        while kind == "again":
            v, rule = core.react.hosted(v)
            kind = rule.effect.kind
            if kind == "again":
                v, note = core.extended(rule, v, s, e.at)
                notes = (*notes, note)
    return v, tuple(c for c in e.calls if c.kind in AWAITED), any(c.kind == "output" for c in e.calls), notes


def _closed(calls: tuple[Proposed, ...]) -> tuple[Reply, ...]:
    """Results for calls that will not run because the run has its answer, or its end."""
    functions = [c for c in calls if c.kind in AWAITED]
    return tuple(closing(i, RoundCall(c.id, c.name, c.args, WAITING), "stopped") for i, c in enumerate(functions))


def charged_for(core: Core, s: State, e: ModelReplied | ModelFailed, call: CallState) -> tuple[State, tuple[Note, ...]]:
    """Charge what the attempt's last report adds, and note the thresholds that crosses."""
    usage = e.usage
    if usage is None:
        return s, ()
    spent, charged = core.amounts.charge(s.book.spent, call, usage)
    call = structs.replace(call, charged=charged)
    book, notes = Book(s.book.run, spent, s.book.extra), ((_ESTIMATED,) if e.estimated else ())
    if core.has_thresholds:
        crossed, more = core.thresholds.cross(s.vars, book, e.at)
        if more:
            book, notes = with_extra(book, crossed=crossed), (*notes, *more)
    return State(s.vars, e.at, s.n, call, s.round, book), notes


def _late(core: Core, s: State, e: ModelReplied | ModelFailed) -> Result:
    """Not the attempt in hand: the end of what was cancelled, an end that came too late, or a mistake of the host."""
    phase, call = s.vars[PHASE], s.call
    if phase == Phase.NEW or call is None:
        return s, Illegal(f"nobody asked for attempt {e.attempt} of call {e.call}")
    known = any((k.call, k.attempt) == (e.call, e.attempt) for k in call.earlier)
    if not known and call.id != e.call and phase not in (Phase.STOPPING, Phase.ENDED):
        return s, Illegal(f"call {e.call} is not the one in hand")
    if not known and call.id == e.call and not 1 <= e.attempt <= call.attempt:
        return s, Illegal(f"nobody asked for attempt {e.attempt} of call {e.call}")
    if e.usage is not None:
        s = charge_late(core, s, UsageReported(e.at, e.call, e.attempt, e.usage))
    if phase == Phase.STOPPING and call.id == e.call and call.attempt == e.attempt and not s.round:
        return ended_in_flight(core, s, e.at, ())
    return s, Wait(wake_at(s))
