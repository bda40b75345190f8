"""Ends: outcomes, stopping what is in flight, deadlines that pass while nothing happens, cancellation."""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import AnyDecision, End, Illegal, Note, Reply, Stop, Wait
from engine.core.events import Cancelled, UsageReported
from engine.core.machine.machine import Phase, Rule
from engine.core.state import (
    ASKED,
    EXTERNAL,
    NO_TIME,
    REPLIED,
    STARTED,
    WAITING,
    Book,
    BookExtra,
    Outcome,
    Refusal,
    RoundCall,
    State,
    chained,
    with_extra,
)
from engine.core.texts import fill
from engine.core.vocabulary import DEFAULT_GRACE_MS, REFUSALS

_STATUS = {
    "completed": ("completed", "answer"),
    "tool_answer": ("completed", "tool_answer"),
    "tool_stop": ("cancelled", "tool_stop"),
}
"""Status and reason where the rule's word alone does not say them; every other word is the reason of a failure."""

_ABOVE = {
    "wall_above": ("wall", "wall"),
    "above": ("refused", "above"),
    "rounds_above": ("rounds", "tool_iterations"),
    "tools_above": ("tools_limit", "tool_calls"),
}
"""Where the ledger has shown the limit of an ancestor that ends a run, by the rule's word, and what it is about."""

Result = tuple[State, AnyDecision]

_WITH_PEOPLE = (ASKED, EXTERNAL)

_GOING_ON = (WAITING, STARTED)
"""A call that runs or may; and a round of which more may come, because its reply was not shown."""

_UNSTARTED = (WAITING, ASKED, EXTERNAL)


def end(
    core: Core,
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    notes: tuple[Note, ...] = (),
    *,
    ref: str = "",
    error: str = "",
    cause: str = "",
    close: tuple[Reply, ...] = (),
) -> Result:
    """End the run by ``rule``. ``ref`` names the answer or the partial text, ``s`` already holds what was charged."""
    if rule.effect.word == "stopped" and s.book.outcome:
        outcome = structs.replace(s.book.outcome, used=core.used(v, s.book.spent))
    else:
        outcome = _outcome(core, s, at, v, rule, ref, error, cause)
    n, book = s.n + 1, s.book
    extra = structs.replace(book.extra, outcome=outcome, until=NO_TIME) if book.extra else BookExtra(outcome=outcome)
    ended = Book(book.run, book.spent, extra)
    after = State(v, at, n, s.call, (), ended)
    return after, End(n, outcome, close, outcome.because, notes)


def _outcome(core: Core, s: State, at: int, v: Values, rule: Rule, ref: str, error: str, cause: str) -> Outcome:
    word, because, limit = rule.effect.word, rule.origin, None
    if word == "finalized":
        occasion = core.final_occasion(v)
        status, reason, because = word, occasion.resource, occasion.origin
        limit = core.hit(occasion.plan, v, s.book, at) if occasion.plan else None
    elif word == "incomplete":
        plan = core.plans[rule.effect.limit]
        status, reason, limit = word, plan.resource, core.hit(plan, v, s.book, at)
    elif word in _ABOVE:
        shown, what = _ABOVE[word]
        refusal: Refusal | None = getattr(s.book.pools, shown)
        status, reason = "incomplete", what
        if refusal is not None:  # a host should say whose limit it is
            reason, limit, because = refusal.limit.resource, refusal.limit, refusal.because
            if word == "wall_above":  # shown as it is at its end
                limit = structs.replace(limit, used=limit.maximum + max(0, at - s.book.run.above))
    elif word == "cancelled":
        status, reason = word, cause
    else:
        status, reason = _STATUS.get(word) or ("failed", word)
    client = s.call.client if s.call and s.call.attempt and status != "cancelled" else ""
    partial = bool(ref) and status not in ("completed", "finalized")
    used, fingerprint = core.used(v, s.book.spent), s.book.run.fingerprint
    return Outcome(status, reason, error, limit, client, ref, partial, used, fingerprint, because)


def stop(
    core: Core,
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    notes: tuple[Note, ...] = (),
    *,
    cause: str = "",
    ref: str = "",
) -> Result:
    """Something is in flight: cancel it, close what never started, and remember how the run will end."""
    n, until = s.n + 1, at + DEFAULT_GRACE_MS
    outcome = _outcome(core, s, at, v, rule, ref, "", cause)
    calls = tuple(replied(c, "stopped") if c.status in _UNSTARTED else c for c in s.round)
    after = State(v, at, n, s.call, calls, with_extra(s.book, outcome=outcome, until=until))
    close = tuple(closing(i, c, _closed_as(c)) for i, c in enumerate(s.round) if c.status in _UNSTARTED)
    decision = _stop_decision(after, n, close, rule.origin, notes)
    if not decision.cancel and not decision.cancel_call:
        return stopped(core, after, at, decision.close)
    return after, decision


def _closed_as(call: RoundCall) -> str:
    """Nobody knows how far a call has come that is not in our hands."""
    return "cancelled" if call.status == EXTERNAL else "stopped"


def _stop_decision(s: State, n: int, close: tuple[Reply, ...], because: str, notes: tuple[Note, ...] = ()) -> Stop:
    cancel = tuple(c.id for c in s.round if c.status == STARTED)
    call = "" if s.round or s.call is None else s.call.id
    return Stop(n, s.book.until, call, cancel, close, because, notes)


def ended_in_flight(core: Core, s: State, at: int, calls: tuple[RoundCall, ...]) -> Result:
    """Something that was cancelled has ended: the last of them ends the run."""
    after = structs.replace(s, at=at, round=calls)
    if any(c.status == STARTED for c in calls):
        return after, Wait(s.book.until)
    return stopped(core, after, at)


def stopped(core: Core, s: State, at: int, close: tuple[Reply, ...] = ()) -> Result:
    """Nothing is in flight any more: the run ends as it was to end."""
    v, rule = core.react.stopped(s.vars)
    return end(core, s, at, v, rule, close=close)


def sticky(core: Core, s: State) -> Result:
    """A host that goes on asking after the end, or while the run is stopping, gets the same answer again."""
    assert s.book.outcome is not None
    if s.vars[PHASE] == Phase.ENDED:
        return s, End(s.n, s.book.outcome, (), s.book.outcome.because)
    return s, _stop_decision(s, s.n, (), s.book.outcome.because)


def passed(core: Core, s: State, at: int) -> Result:
    """What the time alone decides for a run that is going on."""
    states = core.amounts.states(s.vars, s.book, at)
    v, rule = core.react.tick(s.vars, states)
    if rule.effect.kind == "stop":
        return stop(core, s, at, v, rule)
    if rule.effect.kind == "end":
        return end(core, s, at, v, rule, close=unanswered(s))
    after = structs.replace(s, at=at)
    return after, Wait(wake_at(after) if suspended(after) else s.book.run.deadline, rule.origin)


def cancelled(core: Core, s: State, e: Cancelled) -> Result:
    """Somebody wants the run to end; asked twice, the first cause stays."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if phase == Phase.NEW:
        return s, Illegal(illegal_phase(s, "cancelled"))
    v, rule = core.react.cancel(s.vars)
    if rule.effect.kind == "stop":
        return stop(core, s, e.at, v, rule, cause=e.cause)
    return end(core, s, e.at, v, rule, cause=e.cause, close=unanswered(s))


def usage_reported(core: Core, s: State, e: UsageReported) -> Result:
    """Charge what is new of an attempt; nothing else changes."""
    if s.vars[PHASE] == Phase.NEW:
        return s, Illegal(illegal_phase(s, "usage_reported"))
    return charge_late(core, s, e), Wait(wake_at(s))


def charge_late(core: Core, s: State, e: UsageReported) -> State:
    """The state with the report charged, if it is about an attempt that is remembered."""
    call = s.call
    if call is None or not e.attempt:  # what was not admitted yet has used nothing
        return s
    if (call.id, call.attempt) == (e.call, e.attempt):
        spent, charged = core.amounts.charge(s.book.spent, call, e.usage)
        call = structs.replace(call, charged=charged)
    else:
        i = next((i for i, k in enumerate(call.earlier) if (k.call, k.attempt) == (e.call, e.attempt)), -1)
        if i < 0:
            return s
        earlier = list(call.earlier)
        spent, charged = core.amounts.charge(s.book.spent, earlier[i], e.usage)
        earlier[i] = structs.replace(earlier[i], charged=charged)
        call = structs.replace(call, previous=chained(earlier))
    book, outcome = Book(s.book.run, spent, s.book.extra), s.book.outcome
    if outcome is not None and s.vars[PHASE] == Phase.ENDED:
        book = with_extra(book, outcome=structs.replace(outcome, used=core.used(s.vars, spent)))
    return structs.replace(s, at=max(s.at, e.at), call=call, book=book)


def replied(call: RoundCall, why: str) -> RoundCall:
    """The call with a result in place of an execution's; ``why`` says why."""
    return with_extra(structs.replace(call, status=REPLIED), why=why)


def unanswered(s: State) -> tuple[Reply, ...]:
    """Results for the calls of a round that was still waiting for a host's function."""
    return tuple(closing(i, c, "stopped") for i, c in enumerate(s.round) if c.status in (WAITING, STARTED))


def closing(i: int, call: RoundCall, why: str) -> Reply:
    """The synthetic result of a call that has none."""
    return Reply(i, call.id, fill(REFUSALS[why], {"tool": call.tool}), why, because="default: close")


def wake_at(s: State) -> int:
    """The one timer a host keeps: send a ``Tick`` then, if nothing else has happened (``NO_TIME``: never)."""
    phase = s.vars[PHASE]
    if phase == Phase.STOPPING:
        return s.book.until
    if phase in (Phase.NEW, Phase.ENDED):
        return NO_TIME
    if phase == Phase.ASKING:
        return s.book.until
    # While a run is suspended its own clock stands still.
    nearest = NO_TIME if suspended(s) else s.book.run.deadline
    for call in s.round:
        if call.status in _WITH_PEOPLE and call.deadline < nearest:
            nearest = call.deadline
    return nearest


def suspended(s: State) -> bool:
    """Is nothing in flight, and are only people awaited: about a limit, or about every open call of the round?"""
    phase = s.vars[PHASE]
    if phase != Phase.TOOLS:
        return phase == Phase.ASKING
    if s.call is not None and s.call.implied:
        return False  # more calls of a reply that was not shown may follow
    statuses = {call.status for call in s.round}
    return not statuses.isdisjoint(_WITH_PEOPLE) and statuses.isdisjoint(_GOING_ON)
