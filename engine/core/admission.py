"""Admission: the start of a run, calls and their further attempts, and what is asked of the host before them.

Section 3 of the semantics: the machine decides; here its fields are computed and its effect
is filled in with names, numbers and texts.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, REASON, Core, Values, illegal_phase
from engine.core.decisions import AnyDecision, Call, Continue, Illegal, Note, Resolve
from engine.core.ends import Result, end, sticky
from engine.core.events import CallRequested, Resolved, RetryDue, RunStarted
from engine.core.machine.machine import Phase, Rule
from engine.core.machine.plan import Plan
from engine.core.state import NO_TIME, Book, CallState, Run, State, Used
from engine.core.texts import fill

_NOTHING_USED = Used()


def run_started(core: Core, s: State, e: RunStarted) -> Result:
    """The run begins; told twice, it has begun once."""
    if s.vars[PHASE] != Phase.NEW:
        if e.run != s.book.run.id:
            return s, Illegal(f"run {e.run} started while run {s.book.run.id} is going on")
        return sticky(core, s) if s.book.outcome else (s, Continue("default: start"))
    before = e.thread_used or _NOTHING_USED
    run = Run(e.run, e.at, NO_TIME, e.thread, e.parent, e.fingerprint, e.profile, before)
    run = structs.replace(run, deadline=core.amounts.deadline(s.vars, run, final=True))
    book = Book(run, (0,) * core.tools.counters)
    states = core.amounts.states(s.vars, book, e.at) if core.amounts.limits else ()
    earlier = tuple(min(p.maximum, getattr(before, p.resource)) for p in core.thread_fuel)
    v, rule = core.react.start(s.vars, states, earlier)
    started = State(v, e.at, 0, None, (), book)
    if rule.effect.kind == "end":
        return end(core, started, e.at, v, rule)
    return started, Continue(rule.origin)


def call_requested(core: Core, s: State, e: CallRequested) -> Result:
    """A call, or, asked again for the one in hand, a further attempt of it."""
    phase, call = s.vars[PHASE], s.call
    if phase == Phase.READY:
        if call is not None and call.id == e.call and call.attempt:
            return s, Illegal(f"call {e.call} is settled; ask for the next one under another id")
        wanted = CallState(e.call, 0, e.client, NO_TIME, e.model, e.input_tokens, e.max_output)
        return _admit(core, s, e.at, wanted, further=False)
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if call is None or call.id != e.call:
        return s, Illegal(illegal_phase(s, f"call {e.call} requested"))
    if phase == Phase.RESOLVING:
        return s, _resolve_again(core, s, e.at)
    if phase in (Phase.CALLING, Phase.WAITING):
        return _admit(core, s, e.at, call, further=True)
    return s, Illegal(illegal_phase(s, f"call {e.call} requested"))


def retry_due(core: Core, s: State, e: RetryDue) -> Result:
    """The wait before a further attempt is over."""
    if s.vars[PHASE] in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if s.vars[PHASE] != Phase.WAITING or s.call is None or s.call.id != e.call:
        return s, Illegal(illegal_phase(s, f"retry of call {e.call} due"))
    return _admit(core, s, e.at, s.call, further=True)


def _admit(
    core: Core, s: State, at: int, call: CallState, *, further: bool, notes: tuple[Note, ...] = (), ref: str = ""
) -> Result:
    """Ask the machine until it has decided; each extension it takes makes it look again."""
    v, amounts = s.vars, core.amounts
    if amounts.priced and amounts.price(call.model) is None:
        v, rule = core.react.unpriced(v)
        return end(core, s, at, v, rule, notes, error=f"the price table has no model named {call.model}")
    react = core.react.attempt if further else core.react.call
    while True:
        states = amounts.states(v, s.book, at, call.model, call.input_tokens) if amounts.limits else ()
        v, rule = react(v, states)
        kind = rule.effect.kind
        if kind == "again":
            notes = (*notes, core.extended(rule, v, s.book, at))
        elif kind == "call" or kind == "final":
            return _call(core, s, at, v, rule, call, notes, ref)
        elif kind == "resolve":
            return _resolve(core, s, at, v, rule, call, notes)
        else:
            return end(core, s, at, v, rule, notes)


def _call(
    core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, notes: tuple[Note, ...], ref: str
) -> Result:
    n, final, book = s.n + 1, v[REASON] > 0, s.book
    deadline = min(at + core.attempt_wall, NO_TIME)
    if core.amounts.walls:
        deadline = min(deadline, core.amounts.deadline(v, book.run, final))
    notices: tuple[str, ...] = ()
    if core.has_thresholds:
        book, notices, notes = _thresholds(core, s, at, v, final, notes)
    bound = call.max_output
    if core.amounts.pools:
        bound = core.amounts.largest_output(v, book, call, final)
    admitted = CallState(
        call.id, call.attempt + 1, call.client, deadline, call.model, call.input_tokens, call.max_output, call.pauses
    )
    after = State(v, at, n, admitted, (), book)
    if not final:
        asked = Call(n, call.id, admitted.attempt, call.client, deadline, rule.origin, notes, bound)
        return after, structs.replace(asked, notices=notices) if notices else asked
    plan = core.final_plan(v)
    if ref and s.vars[core.asked] != plan.index + 1:
        ref = ""  # time went by while the host was asked: another limit's reserve comes first by now
    text = "" if ref else core.instruction(plan, v, book, at)
    # By position: this record is made in every run, and keywords cost more than all the rest of it.
    last = (True, core.final_tools, text, ref, (), plan.resource)
    return after, Call(n, call.id, admitted.attempt, call.client, deadline, plan.origin, notes, bound, *last)


def _thresholds(
    core: Core, s: State, at: int, v: Values, final: bool, notes: tuple[Note, ...]
) -> tuple[Book, tuple[str, ...], tuple[Note, ...]]:
    """What was crossed by admitting this call, and what is told in its request (nothing, if it is final)."""
    book = s.book
    crossed, more = core.thresholds.cross(v, book, at)
    told = book.told
    notices: list[str] = []
    if not final:
        for bit, threshold, plan in core.thresholds.untold(crossed, told):
            told |= 1 << bit
            notices.append(fill(threshold.text or "", core.words(plan, v, book, at)))
    if crossed != book.crossed or told != book.told:
        book = structs.replace(book, crossed=crossed, told=told)
    return book, tuple(notices), (*notes, *more)


# -- the host's functions -----------------------------------------------------------------------


def _resolve(core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, notes: tuple[Note, ...]) -> Result:
    after = State(v, at, s.n + 1, call, (), s.book)
    return after, resolve_decision(core, after, at, rule.origin, notes)


def asked_for(core: Core, s: State) -> tuple[Plan, str]:
    """The limit for which the host is being asked, and the function."""
    asked = s.vars[core.asked]
    if asked > len(core.plans):
        return core.pending_plan(s.vars), core.policy.finalization.using or ""
    plan = core.plans[asked - 1]
    return plan, core.finalize_step(plan, s.vars).using or ""


def resolve_decision(core: Core, s: State, at: int, because: str, notes: tuple[Note, ...] = ()) -> AnyDecision:
    """Ask for the text that the machine waits for: an instruction, or the reactive refusal."""
    plan, name = asked_for(core, s)
    used, maximum = core.standing(plan, s.vars, s.book, at)
    deadline = core.amounts.deadline(s.vars, s.book.run, final=True)
    return Resolve(s.n, name, plan.resource, used, maximum, deadline, because, notes)


def _resolve_again(core: Core, s: State, at: int) -> AnyDecision:
    return resolve_decision(core, s, at, "default: resolve")


def instruction_resolved(core: Core, s: State, e: Resolved) -> Result:
    """The host's function has answered; the call it was asked for is admitted now, if it still can be."""
    v, rule = core.react.resolved(s.vars, int(e.status in ("ok", "empty")))
    assert s.call is not None
    notes: tuple[Note, ...] = ()
    if rule.effect.word == "resolver_failed":
        text = f"{e.name} {'timed out' if e.status == 'timed_out' else 'failed'}: the next step of the ladder follows"
        notes = (Note("warn", text, core.plans[rule.effect.limit].resource, because=rule.origin),)
    after = State(v, e.at, s.n, s.call, (), s.book)
    ref = e.ref if e.status == "ok" else ""
    return _admit(core, after, e.at, s.call, further=False, notes=notes, ref=ref)
