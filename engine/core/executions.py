"""Executions: the start and the end of each tool call of a round, its further attempts, and people's answers.

Sections 4 and 7 of the semantics. The verdicts come from ``rounds``; here they are carried out, and
when nothing is open any more the ladders move and the breakers learn what happened.
"""

from __future__ import annotations

from msgspec import structs

from engine.core import admission
from engine.core.breakers import BreakerState
from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import Ask, Continue, End, Execute, Illegal, Note, Reply, RunTools, Wait
from engine.core.ends import Result, closing, end, ended_in_flight, passed, sticky, stop, stopped, wake_at
from engine.core.events import ApprovalGiven, CallRequested, ExtensionAnswered, Tick, ToolEnded, ToolRequested
from engine.core.extending import extension_answered
from engine.core.machine.machine import Phase
from engine.core.rounds import breaker_text, external_until, refusal, round_number, tool_deadline
from engine.core.state import (
    ASKED,
    ENDED,
    EXTERNAL,
    LATE_ATTEMPTS,
    NO_TIME,
    REPLIED,
    STARTED,
    WAITING,
    Failure,
    RoundCall,
    State,
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
    facts, breakers = core.tools.facts(call.tool), _breakers_of(core, call)
    if breakers and call.status == WAITING and (skip := _tripped_since(core, s, call, breakers, e.at))[0]:
        return _answered_instead(core, s, e.at, found, "breaker", *skip)
    deadline = tool_deadline(core, s, s.vars, e.at, facts.timeout)
    if e.at >= deadline:
        return _answered_instead(core, s, e.at, found, "no_time" if call.status == WAITING else "timed_out")
    if breakers and call.status == WAITING:
        s, call = _reserved(core, s, call, e.at)
    attempt = call.attempt + 1
    # Only breakers ask how long an execution took.
    first, lost = (call.started or e.at) if breakers else 0, _given_up(call)
    started = RoundCall(
        call.id, call.tool, call.args, STARTED, attempt, "", deadline, first, 0, "", "", call.probes, lost, call.kind
    )
    after = State(s.vars, e.at, s.n, s.call, _with(s.round, found, started), s.book)
    return after, Execute(s.n, found, call.id, attempt, deadline, "default: execute")


def _breakers_of(core: Core, call: RoundCall) -> tuple[int, ...]:
    """The breakers that watch the call: none watches a delegation."""
    return () if call.kind == "agent" else core.tools.facts(call.tool).breakers


def _given_up(call: RoundCall) -> int:
    """The attempts without an end, once the one in flight, if there is one, gives way to another."""
    known = 0 < call.attempt <= LATE_ATTEMPTS
    return call.unreported | (1 << (call.attempt - 1)) if known else call.unreported


def _tripped_since(core: Core, s: State, call: RoundCall, matching: tuple[int, ...], at: int) -> tuple[int, int]:
    """The verdict of the breakers with ``apply now`` that opened since this call was judged, save for its probes."""
    others = tuple(i for i in matching if core.breakers.all[i].apply == "now" and i not in call.probes)
    return core.breakers.verdict(s.book.breakers, others, call.tool, call.args, at)


def _reserved(core: Core, s: State, call: RoundCall, at: int) -> tuple[State, RoundCall]:
    """A call that goes on is the probe of every breaker that has become half-open since it was judged."""
    matching = tuple(i for i in _breakers_of(core, call) if i not in call.probes)
    states, probes = core.breakers.reserve(s.book.breakers, matching, call.tool, call.args, at)
    if not probes:
        return s, call
    return _with_breakers(s, states), structs.replace(call, probes=(*call.probes, *probes))


def _with_breakers(s: State, states: tuple[BreakerState, ...]) -> State:
    if states is s.book.breakers:
        return s
    return structs.replace(s, book=structs.replace(s.book, breakers=states))


def verdict_again(core: Core, s: State, i: int, call: RoundCall) -> Reply:
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


def _skipped_by(core: Core, i: int, call: RoundCall, breaker: int) -> Reply:
    text, because = breaker_text(core, breaker, call.tool)
    return Reply(i, call.id, text, "breaker", because=because)


def _answered_instead(core: Core, s: State, at: int, i: int, why: str, broken: int = 0, breaker: int = -1) -> Result:
    """The call will not start (again): it gets a result that says why, and the round goes on without it.

    ``broken`` and ``breaker`` are the verdict of the breakers, where one of them is why.
    """
    call = s.round[i]
    if call.status == WAITING:
        s = structs.replace(s, book=structs.replace(s.book, tool_counts=_uncounted(core, s, call)))
    replied = RoundCall(
        call.id, call.tool, call.args, REPLIED, call.attempt, why, probes=call.probes, unreported=_given_up(call)
    )
    closed = _skipped_by(core, i, call, breaker) if why == "breaker" else closing(i, call, why)
    unstarted = broken if call.status == WAITING else None
    after, decision = _one_less(core, s, at, _with(s.round, i, replied), unstarted=unstarted)
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
        book = structs.replace(s.book, spent=core.amounts.charge_tool(s.book.spent, e.usage))
        s = structs.replace(s, book=book)
    # How long people take says nothing about a tool.
    began = e.at if away else call.started
    done = RoundCall(
        call.id,
        call.tool,
        call.args,
        ENDED,
        call.attempt,
        "",
        NO_TIME,
        began,
        e.at,
        e.status,
        e.result,
        call.probes,
        call.unreported,
        call.kind,
    )
    if phase == Phase.STOPPING:
        return ended_in_flight(core, s, e.at, _with(s.round, found, done))
    facts = core.tools.facts(call.tool)
    if e.status == "deferred":
        return _deferred(core, s, e, found)
    if facts.retry is not None and not away and e.status in ("failed", "timed_out") and not e.ends:
        again = _again(core, s, e, found)
        if again is not None:
            return again
    notes: tuple[Note, ...] = ()
    if _breakers_of(core, call):
        s, notes = _learn(core, s, (done,), e.at, "now")
    calls = _with(s.round, found, done)
    if e.ends:
        return _tool_ends(core, structs.replace(s, round=calls), e)
    return _one_less(core, s, e.at, calls, notes)


def _deferred(core: Core, s: State, e: ToolEnded, i: int) -> Result:
    """The tool has taken the call and brings its result later: until then it is not in our hands."""
    call = s.round[i]
    until = external_until(core, s, s.vars, e.at, core.tools.facts(call.tool))
    away = structs.replace(call, status=EXTERNAL, deadline=until)
    after = State(s.vars, e.at, s.n, s.call, _with(s.round, i, away), s.book)
    return after, Wait(wake_at(after), "default: deferred")


def _overdue(core: Core, s: State, at: int, i: int) -> Result:
    """The time that a call not in our hands may take is over: that is its result."""
    call = s.round[i]
    replied = RoundCall(
        call.id,
        call.tool,
        call.args,
        REPLIED,
        call.attempt,
        "timed_out",
        started=at,
        ended=at,
        outcome="timed_out",
        probes=call.probes,
        unreported=call.unreported,
        kind=call.kind,
    )
    notes: tuple[Note, ...] = ()
    if core.breakers.all:
        s, notes = _learn(core, s, (replied,), at, "now")
    return _closed(core, s, at, i, replied, closing(i, call, "timed_out"), notes)


def _ended_late(core: Core, s: State, e: ToolEnded, i: int) -> Result:
    """The end of an attempt that was given up for a further one: what it used is charged, once."""
    call, bit = s.round[i], 1 << (e.attempt - 1)
    if not call.unreported & bit:
        return s, Wait(wake_at(s))
    book = s.book
    if e.usage is not None:
        book = structs.replace(book, spent=core.amounts.charge_tool(book.spent, e.usage))
    known = structs.replace(call, unreported=call.unreported & ~bit)
    after = State(s.vars, e.at, s.n, s.call, _with(s.round, i, known), book)
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
    after = State(s.vars, e.at, s.n, s.call, _with(s.round, i, started), s.book)
    return after, Execute(s.n, i, call.id, attempt, deadline, facts.retry_origin, (), start)


def approval_given(core: Core, s: State, e: ApprovalGiven) -> Result:
    """A person has answered, or has not: a grant looks again at time and breakers, a refusal is the call's result."""
    phase, found = s.vars[PHASE], find(s.round, e.id)
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if phase != Phase.TOOLS or found < 0 or s.round[found].status != ASKED:
        return s, Illegal(f"nobody is asked about tool call {e.id}")
    if e.at >= s.book.run.deadline:
        return passed(core, s, e.at)
    call = s.round[found]
    if e.answer != "granted":
        return _withheld(core, s, e.at, found, call, e.answer)
    if (e.answered or e.at) >= call.deadline:
        # No answer in time is a refusal, also where the host was slower to say so than the person to answer.
        return _withheld(core, s, e.at, found, call, "expired")
    if e.args is not None and e.args != call.args:
        # Another argument set: what was reserved for the proposed one is given back, and it is judged again.
        s = _with_breakers(s, core.breakers.release(s.book.breakers, call))
        call = structs.replace(call, args=e.args, probes=())
    breakers = _breakers_of(core, call)
    matching = tuple(i for i in breakers if i not in call.probes)
    skip = core.breakers.verdict(s.book.breakers, matching, call.tool, call.args, e.at)
    if skip[0]:
        return _withheld(core, s, e.at, found, call, "breaker", *skip)
    v, rule = core.react.granted(s.vars)
    if breakers:
        s, call = _reserved(core, s, call, e.at)
    n, verdict = s.n + 1, _granted(core, s, e.at, v, found, call, rule.origin)
    status, until = (EXTERNAL, verdict.until) if isinstance(verdict, Ask) else (WAITING, NO_TIME)
    granted = structs.replace(call, status=status, deadline=until)
    after = State(v, e.at, n, s.call, _with(s.round, found, granted), s.book)
    return after, RunTools(n, round_number(core, v), (verdict,), False, rule.origin)


def _granted(core: Core, s: State, at: int, v: Values, i: int, call: RoundCall, because: str) -> Execute | Ask:
    """What a call does that a person has allowed: it runs, or the host's user executes it."""
    facts = core.tools.facts(call.tool)
    if call.kind == "external":
        return Ask(s.n + 1, i, call.id, external_until(core, s, v, at, facts), because, external=True)
    return Execute(s.n + 1, i, call.id, 1, tool_deadline(core, s, v, at, facts.timeout), because)


def _withheld(
    core: Core, s: State, at: int, i: int, call: RoundCall, why: str, broken: int = 0, breaker: int = -1
) -> Result:
    """What was held for the call is given back, and it gets a result that says why it did not run.

    ``broken`` and ``breaker`` are the verdict of the breakers, where one of them is why.
    """
    v, _ = core.react.withheld(s.vars, broken)
    # No answer in time is a refusal; where nobody could be asked, nobody has refused.
    outcome = "denied" if why in ("refused", "expired") else ""
    replied = RoundCall(
        call.id, call.tool, call.args, REPLIED, 0, why, outcome=outcome, probes=call.probes, kind=call.kind
    )
    held = structs.replace(s, vars=v, book=structs.replace(s.book, tool_counts=_uncounted(core, s, call)))
    notes: tuple[Note, ...] = ()
    if outcome and core.breakers.all:
        held, notes = _learn(core, held, (replied,), at, "now")
    reply = _skipped_by(core, i, call, breaker) if why == "breaker" else closing(i, call, why)
    return _closed(core, held, at, i, replied, reply, notes)


def _closed(core: Core, s: State, at: int, i: int, replied: RoundCall, reply: Reply, notes: tuple[Note, ...]) -> Result:
    """A call that people were awaited for has its result, and the round goes on without it."""
    after, decision = _one_less(core, s, at, _with(s.round, i, replied), notes)
    if isinstance(decision, End):
        return after, structs.replace(decision, close=(reply,))
    n, complete = after.n + 1, isinstance(decision, Continue)
    after = structs.replace(after, n=n)
    return after, RunTools(n, round_number(core, after.vars), (reply,), complete, "default: ask", decision.notes)


def _uncounted(core: Core, s: State, call: RoundCall) -> tuple[int, ...]:
    counts = list(s.book.tool_counts)
    for k, _, _, _ in core.tools.facts(call.tool).limits:
        counts[k] -= 1
    return tuple(counts)


def tick(core: Core, s: State, e: Tick) -> Result:
    """Time has passed: a deadline, the time a person had to answer, or the end of the grace."""
    phase = s.vars[PHASE]
    if phase == Phase.STOPPING:
        if e.at < s.book.until:
            return structs.replace(s, at=e.at), Wait(s.book.until)
        close = tuple(closing(i, c, "cancelled") for i, c in enumerate(s.round) if c.status == STARTED)
        return stopped(core, s, e.at, close)
    if phase == Phase.ENDED:
        return s, Wait(NO_TIME)
    if phase == Phase.NEW:
        return s, Illegal(illegal_phase(s, "tick"))
    if e.at < s.book.run.deadline:
        if phase == Phase.ASKING and e.at >= s.book.until:
            return extension_answered(core, s, ExtensionAnswered(e.at, core.questioned(s.vars).limit.id, "expired"))
        for i, call in enumerate(s.round):
            if e.at >= call.deadline and call.status == ASKED:
                return approval_given(core, s, ApprovalGiven(e.at, call.id, "expired"))
            if e.at >= call.deadline and call.status == EXTERNAL:
                return _overdue(core, s, e.at, i)
    return passed(core, s, e.at)


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
            after, decision = _one_less(core, after, e.at, calls)
            if isinstance(decision, End):
                return after, decision
    return admission.call_requested(core, after, e)


def _one_less(
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
        s, more = _learn(core, s, calls, at, "round_end")
        notes = (*notes, *more)
    v, rule = core.react.judged(v, int(any(call.why == "above" for call in calls)))
    if rule.effect.kind == "end":
        return end(core, s, at, v, rule, notes)
    # More calls of a reply that was not shown may follow: what was judged is kept until the next call.
    kept = _learnt(calls) if s.call is not None and s.call.implied else ()
    after = State(v, at, s.n, s.call, kept, s.book)
    return after, Continue(rule.origin, notes)


def _learnt(calls: tuple[RoundCall, ...]) -> tuple[RoundCall, ...]:
    """The calls of a round that may go on, without what breakers have been told: they are told once."""
    told = [structs.replace(c, outcome="", probes=()) if c.outcome or c.probes else c for c in calls]
    return tuple(told)


def _learn(core: Core, s: State, calls: tuple[RoundCall, ...], at: int, when: str) -> tuple[State, tuple[Note, ...]]:
    """Tell the breakers how these calls ended, in the model's order; what never ran gives its probe back."""
    book = s.book
    ended = [(call, _breakers_of(core, call)) for call in calls if call.status == ENDED or call.outcome]
    states, notes = core.breakers.apply(book.breakers, ended, at, when)
    if when == "round_end":
        for call in calls:
            if call.probes and call.status == REPLIED and not call.outcome:
                states = core.breakers.release(states, call)
    return _with_breakers(s, states), notes


def _tool_ends(core: Core, s: State, e: ToolEnded) -> Result:
    """The tool itself ends the run: with its result as the answer, or without one."""
    v, rule = core.react.tool_ends(s.vars, int(e.ends == "answer"))
    ref = e.ref if e.ends == "answer" else ""
    if rule.effect.kind == "stop":
        return stop(core, s, e.at, v, rule, ref=ref, cause="tool")
    return end(core, s, e.at, v, rule, ref=ref, cause="tool")


def _with(calls: tuple[RoundCall, ...], i: int, call: RoundCall) -> tuple[RoundCall, ...]:
    return (*calls[:i], call, *calls[i + 1 :]) if len(calls) > 1 else (call,)


def find(calls: tuple[RoundCall, ...], id: str) -> int:
    """Position of a tool call in the round in hand, -1 if it is none of them."""
    for i, call in enumerate(calls):
        if call.id == id:
            return i
    return -1
