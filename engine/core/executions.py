"""Executions: the start and the end of each tool call of a round, and its further attempts.

Sections 4 and 7 of the semantics. The verdicts come from ``rounds``; here they are carried out, and
when nothing is open any more the ladders move and the breakers learn what happened.
"""

from __future__ import annotations

from msgspec import structs

from engine.core import admission
from engine.core.core import PHASE, Core
from engine.core.decisions import Continue, End, Execute, Illegal, Note, Reply, Wait
from engine.core.ends import Result, closing, end, ended_in_flight, passed, sticky, stop, wake_at
from engine.core.events import CallRequested, ToolEnded, ToolRequested
from engine.core.learning import breakers_of, learn, learnt, reserved, tripped_since, with_outcome
from engine.core.machine.machine import Phase
from engine.core.rounds import breaker_text, external_until, refusal, tool_deadline
from engine.core.state import (
    ASKED,
    ENDED,
    EXTERNAL,
    LATE_ATTEMPTS,
    NO_TIME,
    REPLIED,
    STARTED,
    WAITING,
    Book,
    Failure,
    RoundCall,
    State,
    with_extra,
)
from engine.core.switching import wait


def tool_requested(core: Core, s: State, e: ToolRequested) -> Result:
    """Just before a tool starts: its verdict stands, unless the run is ending or its time is over."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    found = find(s.round, e.id)
    if phase not in (Phase.TOOLS, Phase.READY) or found < 0:
        return s, Illegal(f"tool call {e.id} is not one of the round in hand")
    call = s.round[found]
    if call.status == REPLIED:
        return s, verdict_again(core, s, found, call)
    if call.status in (ENDED, ASKED, EXTERNAL):
        return s, Illegal(f"tool call {e.id} {'has already ended' if call.status == ENDED else 'waits for a person'}")
    if e.at >= s.book.run.deadline:
        return passed(core, s, e.at)
    facts, breakers = core.tools.facts(call.tool), breakers_of(core, call)
    if breakers and call.status == WAITING and (skip := tripped_since(core, s, call, breakers, e.at))[0]:
        return _answered_instead(core, s, e.at, found, "breaker", *skip)
    deadline = tool_deadline(core, s, s.vars, e.at, facts.timeout)
    if e.at >= deadline:
        return _answered_instead(core, s, e.at, found, "no_time" if call.status == WAITING else "timed_out")
    if breakers and call.status == WAITING:
        s, call = reserved(core, s, call, e.at)
    attempt = call.attempt + 1
    # Only breakers ask how long an execution took.
    first, lost = (call.started or e.at) if breakers else 0, _given_up(call)
    started = RoundCall(call.id, call.tool, call.args, STARTED, attempt, deadline, first, call.extra)
    if lost != call.unreported:
        started = with_extra(started, unreported=lost)
    after = State(s.vars, e.at, s.n, s.call, with_call(s.round, found, started), s.book)
    return after, Execute(s.n, found, call.id, attempt, deadline, "default: execute")


def _given_up(call: RoundCall) -> int:
    """The attempts without an end, once the one in flight, if there is one, gives way to another."""
    known = 0 < call.attempt <= LATE_ATTEMPTS
    return call.unreported | (1 << (call.attempt - 1)) if known else call.unreported


def verdict_again(core: Core, s: State, i: int, call: RoundCall) -> Reply:
    """The reply to a call that was refused before and is asked for again: what it got then, in today's words."""
    if call.why == "breaker":
        return _skipped(core, s, s.at, i, call)
    text, because = refusal(core, s, s.vars, s.book.tool_counts, call.tool, "", call.why, None)
    return Reply(i, call.id, text, call.why, because=because)


def _skipped(core: Core, s: State, at: int, i: int, call: RoundCall) -> Reply:
    """The reply to a call that a breaker skips: in the words of the one that is open."""
    matching = core.tools.facts(call.tool).breakers
    _, breaker = core.breakers.verdict(s.book.breakers, matching, call.tool, call.args, at)
    text, because = breaker_text(core, breaker if breaker >= 0 else matching[0], call.tool)
    return Reply(i, call.id, text, "breaker", because=because)


def skipped_by(core: Core, i: int, call: RoundCall, breaker: int) -> Reply:
    text, because = breaker_text(core, breaker, call.tool)
    return Reply(i, call.id, text, "breaker", because=because)


def _answered_instead(core: Core, s: State, at: int, i: int, why: str, broken: int = 0, breaker: int = -1) -> Result:
    """The call will not start (again): it gets a result that says why, and the round goes on without it.

    ``broken`` and ``breaker`` are the verdict of the breakers, where one of them is why.
    """
    call = s.round[i]
    if call.status == WAITING:
        s = structs.replace(s, book=with_extra(s.book, tool_counts=uncounted(core, s, call)))
    replied = RoundCall(call.id, call.tool, call.args, REPLIED, call.attempt)
    replied = with_extra(replied, why=why, probes=call.probes, unreported=_given_up(call))
    closed = skipped_by(core, i, call, breaker) if why == "breaker" else closing(i, call, why)
    unstarted = broken if call.status == WAITING else None
    after, decision = one_less(core, s, at, with_call(s.round, i, replied), unstarted=unstarted)
    if isinstance(decision, End):
        return after, structs.replace(decision, close=(closed,))
    return after, structs.replace(closed, notes=decision.notes)


def tool_ended(core: Core, s: State, e: ToolEnded) -> Result:
    """An execution has ended, or the tool brings its result later; of an earlier attempt only what it used counts."""
    phase, found = s.vars[PHASE], find(s.round, e.id)
    if phase == Phase.ENDED:
        return s, Wait(NO_TIME)
    if found < 0 or phase not in (Phase.TOOLS, Phase.STOPPING):
        return s, Illegal(f"tool call {e.id} is not one of the round in hand")
    call = s.round[found]
    away, settled = call.status == EXTERNAL, call.status in (ENDED, REPLIED)
    if not e.attempt and (settled or (away and e.status == "deferred")):
        return s, Wait(wake_at(s))
    # Hosts that do not ask before a start begin with the attempt that the verdict named, the first.
    if not (0 if away else 1) <= e.attempt <= max(1, call.attempt) or call.status == ASKED:
        return s, Illegal(f"attempt {e.attempt} of tool call {e.id} was never started")
    if settled or 0 < e.attempt < call.attempt:
        return _ended_late(core, s, e, found)
    if away and e.status == "deferred":
        return s, Wait(wake_at(s))
    if e.usage is not None:
        book = Book(s.book.run, core.amounts.charge_tool(s.book.spent, e.usage), s.book.extra)
        s = structs.replace(s, book=book)
    # How long people take says nothing about a tool.
    began = e.at if away else call.started
    done = RoundCall(call.id, call.tool, call.args, ENDED, call.attempt, NO_TIME, began, call.extra)
    breakers = breakers_of(core, call)
    if breakers:
        done = with_outcome(done, e)
    if phase == Phase.STOPPING:
        return ended_in_flight(core, s, e.at, with_call(s.round, found, done))
    facts = core.tools.facts(call.tool)
    if e.status == "deferred":
        return _deferred(core, s, e, found)
    if facts.retry is not None and not away and e.status in ("failed", "timed_out") and not e.ends:
        again = _again(core, s, e, found)
        if again is not None:
            return again
    notes: tuple[Note, ...] = ()
    if breakers and core.breakers.at_once:
        s, notes = learn(core, s, (done,), e.at, "now")
    calls = with_call(s.round, found, done)
    if e.ends:
        return _tool_ends(core, structs.replace(s, round=calls), e)
    return one_less(core, s, e.at, calls, notes)


def _deferred(core: Core, s: State, e: ToolEnded, i: int) -> Result:
    """The tool has taken the call and brings its result later: until then it is not in our hands."""
    call = s.round[i]
    until = external_until(core, s, s.vars, e.at, core.tools.facts(call.tool))
    away = structs.replace(call, status=EXTERNAL, deadline=until)
    after = State(s.vars, e.at, s.n, s.call, with_call(s.round, i, away), s.book)
    return after, Wait(wake_at(after), "default: deferred")


def _ended_late(core: Core, s: State, e: ToolEnded, i: int) -> Result:
    """The end of an attempt that was given up for a further one: what it used is charged, once."""
    call, bit = s.round[i], 1 << (e.attempt - 1)
    if not call.unreported & bit:
        return s, Wait(wake_at(s))
    book = s.book
    if e.usage is not None:
        book = Book(book.run, core.amounts.charge_tool(book.spent, e.usage), book.extra)
    known = with_extra(call, unreported=call.unreported & ~bit)
    after = State(s.vars, e.at, s.n, s.call, with_call(s.round, i, known), book)
    return after, Wait(wake_at(after))


def _again(core: Core, s: State, e: ToolEnded, i: int) -> Result | None:
    """A further attempt of an execution that failed, while its tool's rule grants one and its wait ends in time."""
    call = s.round[i]
    facts = core.tools.facts(call.tool)
    retry = facts.retry
    if retry is None or call.attempt > retry.times:
        return None
    delay = wait(retry, call.attempt - 1, Failure("tool", jitter=e.jitter))
    start = e.at + delay
    deadline = tool_deadline(core, s, s.vars, start, facts.timeout)
    if start >= min(deadline, s.book.run.deadline):
        return None
    attempt = call.attempt + 1
    started = structs.replace(call, attempt=attempt, deadline=deadline)
    after = State(s.vars, e.at, s.n, s.call, with_call(s.round, i, started), s.book)
    return after, Execute(s.n, i, call.id, attempt, deadline, facts.retry_origin, (), start)


def uncounted(core: Core, s: State, call: RoundCall) -> tuple[int, ...]:
    """How often tools were executed, by rule with a limit, if this call is not executed after all."""
    counts = list(s.book.tool_counts)
    for k, _, _, _ in core.tools.facts(call.tool).limits:
        counts[k] -= 1
    return tuple(counts)


def call_requested(core: Core, s: State, e: CallRequested) -> Result:
    """A call; the tool calls that the host has answered by itself have their results before it is looked at."""
    if s.vars[PHASE] != Phase.TOOLS or s.call is None or s.call.id == e.call:
        return admission.call_requested(core, s, e)
    # A person's answer cannot be given in another's place, so what is asked is never answered by the host.
    missing = [
        c.id
        for c in s.round
        if c.status in (ASKED, EXTERNAL) or (c.status in (WAITING, STARTED) and c.id not in e.answered)
    ]
    if missing:
        return s, Illegal(f"call {e.call} requested while tool call {missing[0]} has no result")
    calls, after = s.round, s
    for i in range(len(calls)):
        if calls[i].status in (WAITING, STARTED):
            calls = (*calls[:i], structs.replace(calls[i], status=ENDED), *calls[i + 1 :])
            after, decision = one_less(core, after, e.at, calls)
            if isinstance(decision, End):
                return after, decision
    return admission.call_requested(core, after, e)


def one_less(
    core: Core,
    s: State,
    at: int,
    calls: tuple[RoundCall, ...],
    notes: tuple[Note, ...] = (),
    *,
    unstarted: int | None = None,
) -> Result:
    """One call less is open; the last one completes the round: breakers learn its outcomes, and the ladders move.

    ``unstarted`` is for a call that was to run and is answered instead: the breakers' verdict on it, 0 if none is why.
    """
    v, rule = core.react.tool_end(s.vars) if unstarted is None else core.react.unstarted(s.vars, unstarted)
    if rule.effect.kind == "wait":
        after = State(v, at, s.n, s.call, calls, s.book)
        return after, Wait(wake_at(after), rule.origin, notes)
    if core.breakers.all:
        s, more = learn(core, s, calls, at, "round_end")
        notes = (*notes, *more)
    v, rule = core.react.judged(v, int(any(call.extra is not None and call.extra.why == "above" for call in calls)))
    if rule.effect.kind == "end":
        return end(core, s, at, v, rule, notes)
    # More calls of a reply that was not shown may follow: what was judged is kept until the next call.
    joined = s.call is not None and s.call.extra is not None and s.call.extra.implied
    kept = learnt(calls) if joined else ()
    after = State(v, at, s.n, s.call, kept, s.book)
    return after, Continue(rule.origin, notes)


def _tool_ends(core: Core, s: State, e: ToolEnded) -> Result:
    """The tool itself ends the run: with its result as the answer, or without one."""
    v, rule = core.react.tool_ends(s.vars, int(e.ends == "answer"))
    ref = e.ref if e.ends == "answer" else ""
    if rule.effect.kind == "stop":
        return stop(core, s, e.at, v, rule, ref=ref, cause="tool")
    return end(core, s, e.at, v, rule, ref=ref, cause="tool")


def with_call(calls: tuple[RoundCall, ...], i: int, call: RoundCall) -> tuple[RoundCall, ...]:
    return (*calls[:i], call, *calls[i + 1 :]) if len(calls) > 1 else (call,)


def find(calls: tuple[RoundCall, ...], id: str) -> int:
    """Position of a tool call in the round in hand, -1 if it is none of them."""
    for i, call in enumerate(calls):
        if call.id == id:
            return i
    return -1
