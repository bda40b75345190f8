"""What people answer about tool calls, and what becomes of a call that nobody answers in time.

Sections 4 and 9 of the semantics: grants and refusals, results that somebody else was to bring, and time that passes.
How a call that may run is carried out is ``executions``' business.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import Ask, Continue, End, Execute, Illegal, Note, Reply, RunTools, Wait
from engine.core.ends import Result, closing, passed, sticky, stopped
from engine.core.events import ApprovalGiven, ExtensionAnswered, Tick
from engine.core.executions import find, one_less, skipped_by, uncounted, with_call
from engine.core.extending import extension_answered
from engine.core.learning import breakers_of, learn, reserved, with_breakers
from engine.core.machine.machine import Phase
from engine.core.rounds import external_until, round_number, tool_deadline
from engine.core.state import ASKED, EXTERNAL, NO_TIME, REPLIED, STARTED, WAITING, RoundCall, State, with_extra


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
    breakers = breakers_of(core, call)
    if breakers and e.args is not None and e.args != call.args:
        # Another argument set: what was reserved for the proposed one is given back, and it is judged again.
        s = with_breakers(s, core.breakers.release(s.book.breakers, call))
        call = with_extra(structs.replace(call, args=e.args), probes=())
    matching = tuple(i for i in breakers if i not in call.probes)
    skip = core.breakers.verdict(s.book.breakers, matching, call.tool, call.args, e.at)
    if skip[0]:
        return _withheld(core, s, e.at, found, call, "breaker", *skip)
    v, rule = core.react.granted(s.vars)
    if breakers:
        s, call = reserved(core, s, call, e.at)
    n, verdict = s.n + 1, _granted(core, s, e.at, v, found, call, rule.origin)
    status, until = (EXTERNAL, verdict.until) if isinstance(verdict, Ask) else (WAITING, NO_TIME)
    granted = structs.replace(call, status=status, deadline=until)
    after = State(v, e.at, n, s.call, with_call(s.round, found, granted), s.book)
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
    replied = RoundCall(call.id, call.tool, call.args, REPLIED)
    replied = with_extra(replied, why=why, outcome=outcome, probes=call.probes, kind=call.kind)
    held = structs.replace(s, vars=v, book=with_extra(s.book, tool_counts=uncounted(core, s, call)))
    notes: tuple[Note, ...] = ()
    if outcome and core.breakers.all:
        held, notes = learn(core, held, (replied,), at, "now")
    if why == "breaker":
        reply = skipped_by(core, i, call, breaker)
    else:
        asked = core.tools.facts(call.tool).ask_origin
        because = _ended_by(core, s, at, call, asked) if why == "expired" else asked
        reply = structs.replace(closing(i, call, why), because=because)
    return _closed(core, held, at, i, replied, reply, notes)


def _ended_by(core: Core, s: State, at: int, call: RoundCall, own: str) -> str:
    """The rule by which the time of a call with people is over: its ``own``, or a wall that goes on meanwhile."""
    until, wall = core.amounts.people_wall(s.vars, s.book.run)
    return wall if call.deadline >= until <= at else own


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


def _overdue(core: Core, s: State, at: int, i: int) -> Result:
    """The time that a call not in our hands may take is over: that is its result."""
    call = s.round[i]
    replied = RoundCall(call.id, call.tool, call.args, REPLIED, call.attempt, NO_TIME, at, call.extra)
    replied = with_extra(replied, why="timed_out", ended=at, outcome="timed_out")
    notes: tuple[Note, ...] = ()
    if core.breakers.all:
        s, notes = learn(core, s, (replied,), at, "now")
    reply = closing(i, call, "timed_out")
    because = _ended_by(core, s, at, call, core.tools.facts(call.tool).timeout_origin)
    return _closed(core, s, at, i, replied, structs.replace(reply, because=because), notes)


def _closed(core: Core, s: State, at: int, i: int, replied: RoundCall, reply: Reply, notes: tuple[Note, ...]) -> Result:
    """A call that people were awaited for has its result, and the round goes on without it."""
    after, decision = one_less(core, s, at, with_call(s.round, i, replied), notes)
    if isinstance(decision, End):
        return after, structs.replace(decision, close=(reply,))
    n, complete = after.n + 1, isinstance(decision, Continue)
    after = structs.replace(after, n=n)
    return after, RunTools(n, round_number(core, after.vars), (reply,), complete, reply.because, decision.notes)
