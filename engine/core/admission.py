"""Admission: the start of a run, calls and their further attempts, and what is asked of the host before them.

Section 3 of the semantics: the machine decides; here its fields are computed and its effect
is filled in with names, numbers and texts.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.core import PHASE, REASON, Core, Values, illegal_phase
from engine.core.decisions import AnyDecision, Call, Continue, Illegal, Note, Resolve, Retry
from engine.core.ends import Result, end, sticky
from engine.core.events import CallRequested, RetryDue, RunStarted
from engine.core.host import FULL
from engine.core.ladders import Consult
from engine.core.machine.machine import Phase, Rule
from engine.core.outcome import NOTHING_USED, Used
from engine.core.state import NO_TIME, Book, CallExtra, CallState, Run, State, remembered, with_extra
from engine.core.suspension import question
from engine.core.switching import in_force, retracted, use
from engine.core.texts import fill


def run_started(core: Core, s: State, e: RunStarted) -> Result:
    """The run begins; told twice, it has begun once."""
    if s.vars[PHASE] != Phase.NEW:
        if e.run != s.book.run.id:
            return s, Illegal(f"run {e.run} started while run {s.book.run.id} is going on")
        return sticky(core, s) if s.book.outcome else (s, Continue("default: start"))
    before = e.thread_used or NOTHING_USED
    book = Book(_begun(core, s, e, before))
    if core.tools.counters or s.book.pools is not None:
        book = with_extra(book, tool_counts=(0,) * core.tools.counters, pools=s.book.pools)
    states = core.amounts.states(s.vars, book, e.at)
    earlier = tuple(min(p.maximum, getattr(before, p.resource)) for p in core.thread_fuel)
    v, rule = core.react.start(s.vars, states, earlier)
    started = State(v, e.at, 0, None, (), book)
    if rule.effect.kind == "end":
        return end(core, started, e.at, v, rule)
    return started, Continue(rule.origin)


def _begun(core: Core, s: State, e: RunStarted, before: Used) -> Run:
    known = s.book.run  # what the ledger has shown before
    lacks = tuple(ability for ability in FULL if ability not in e.profile)
    run = with_extra(
        Run(e.run, e.at, NO_TIME, e.fingerprint),
        thread=e.thread,
        parent=e.parent,
        thread_used=before,
        lacks=lacks,
        above=known.above,
        opened=known.opened,
        node=e.node,
        clients=e.clients if core.switching.switches else (),
    )
    return structs.replace(run, deadline=core.amounts.deadline(s.vars, run, final=True))


def call_requested(core: Core, s: State, e: CallRequested) -> Result:
    """A call, or, asked again for the one in hand, a further attempt of it."""
    phase, call = s.vars[PHASE], s.call
    if phase == Phase.READY:
        if call is not None and call.id == e.call and call.attempt:
            return s, Illegal(f"call {e.call} is settled; ask for the next one under another id")
        notes: tuple[Note, ...] = ()
        if core.switching.switches:
            s, notes = _new_exchange(core, s)
        return admit(core, s, e.at, _wanted(core, s, e), further=False, notes=notes)
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if call is None or call.id != e.call:
        return s, Illegal(illegal_phase(s, f"call {e.call} requested"))
    if phase == Phase.RESOLVING:
        return s, _resolve_again(core, s, e.at)
    if phase in (Phase.CALLING, Phase.WAITING):
        return admit(core, s, e.at, call, further=True)
    return s, Illegal(illegal_phase(s, f"call {e.call} requested"))


def _wanted(core: Core, s: State, e: CallRequested) -> CallState:
    """The call as it will be made: by the host's own client, unless the run has switched to another."""
    other = in_force(s.book, e.client, e.at) if core.switching.switches else None
    if other is None:
        return CallState(e.call, 0, e.client, e.model, e.input_tokens, e.max_output)
    return CallState(e.call, 0, other.name, other.model, e.input_tokens, other.max_output)


def _new_exchange(core: Core, s: State) -> tuple[State, tuple[Note, ...]]:
    """What failed in the last exchange may be asked again in this one; thresholds crossed since then switch now."""
    book = s.book
    notes: tuple[Note, ...] = ()
    if book.exchange:
        book = with_extra(book, exchange=())
    if core.has_thresholds:
        for bit, threshold in core.thresholds.unused(book.crossed, book.told):
            book, note = use(book, threshold, bit)
            notes = (*notes, note)
    return (s, notes) if book is s.book else (structs.replace(s, book=book), notes)


def retry_due(core: Core, s: State, e: RetryDue) -> Result:
    """The wait before a further attempt is over; reported too early, it goes on."""
    if s.vars[PHASE] in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if s.vars[PHASE] != Phase.WAITING or s.call is None or s.call.id != e.call:
        return s, Illegal(illegal_phase(s, f"retry of call {e.call} due"))
    call = s.call
    if e.at < call.not_before:
        return s, Retry(s.n, call.id, call.attempt + 1, call.client, call.not_before, "default: retry")
    return admit(core, s, e.at, s.call, further=True)


def admit(
    core: Core, s: State, at: int, call: CallState, *, further: bool, notes: tuple[Note, ...] = (), ref: str = ""
) -> Result:
    """Ask the machine until it has decided; each extension it takes makes it look again."""
    v, amounts = s.vars, core.amounts
    if s.call is not None and call is not s.call:
        call = structs.replace(call, previous=remembered(s.call, call.id))
    if amounts.priced and amounts.price(call.model) is None:
        v, rule = core.react.unpriced(v)
        return end(core, s, at, v, rule, notes, error=f"the price table has no model named {call.model}")
    react = core.react.attempt if further else core.react.call
    while True:
        states = amounts.states(v, s.book, at, call.model, call.input_tokens)
        v, rule = react(v, states)
        kind = rule.effect.kind
        if kind == "again":
            v, note = core.extended(rule, v, s, at)
            notes = (*notes, note)
        elif kind == "call" or kind == "final":
            return attempted(core, s, at, v, rule, call, notes, ref)
        elif kind == "suspend":
            return question(core, s, at, v, rule, call, notes)
        elif kind == "resolve":
            return _resolve(core, s, at, v, rule, call, notes)
        else:
            return end(core, s, at, v, rule, notes)


def attempted(
    core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, notes: tuple[Note, ...] = (), ref: str = ""
) -> Result:
    """The next attempt of ``call`` is admitted by this rule; ``ref`` is the instruction that the host has computed."""
    n, final, book = s.n + 1, v[REASON] > 0, s.book
    failed = None if call.extra is None else call.extra.instead_of
    if failed is not None:
        book = core.switching.switched(book, failed, call, at)
    deadline = min(at + core.attempt_wall, NO_TIME, core.amounts.deadline(v, book.run, final))
    notices: tuple[str, ...] = ()
    if core.has_thresholds:
        book, notices, notes = _thresholds(core, book, at, v, final, notes)
    bound, kept = call.max_output, book.extra
    if core.amounts.pools or (kept is not None and kept.pools is not None):
        bound = core.amounts.largest_output(v, book, call, final)
    admitted = CallState(
        call.id,
        call.attempt + 1,
        call.client,
        call.model,
        call.input_tokens,
        call.max_output,
        None,
        remembered(call, call.id),
        CallExtra(call.pauses) if call.extra is not None and call.extra.pauses else None,
    )
    after = State(v, at, n, admitted, (), book)
    retract = "" if failed is None else retracted(failed, failed.failure)
    if not final:
        asked = Call(n, call.id, admitted.attempt, call.client, deadline, rule.origin, notes, bound)
        hidden = core.breakers.hidden(kept.breakers, at) if kept is not None and kept.breakers else ()
        if notices or hidden or retract:
            asked = structs.replace(asked, notices=notices, hidden=hidden, retract=retract)
        return after, asked
    occasion = core.final_occasion(v)
    if ref and s.vars[core.asked] != occasion.code:
        ref = ""  # time went by while the host was asked: another limit's reserve comes first by now
    text = "" if ref else core.instruction(occasion, v, book, at)
    # By position: this record is made in every run, and keywords cost more than all the rest of it.
    last = (True, core.final_tools, text, ref, (), occasion.resource)
    decision = Call(n, call.id, admitted.attempt, call.client, deadline, occasion.origin, notes, bound, *last)
    return after, structs.replace(decision, retract=retract) if retract else decision


def _thresholds(
    core: Core, book: Book, at: int, v: Values, final: bool, notes: tuple[Note, ...]
) -> tuple[Book, tuple[str, ...], tuple[Note, ...]]:
    """What was crossed by admitting this call, and what is told in its request (nothing, if it is final)."""
    crossed, more = core.thresholds.cross(v, book, at)
    told = book.told
    notices: list[str] = []
    if not final:
        for bit, threshold, plan in core.thresholds.untold(crossed, told):
            told |= 1 << bit
            notices.append(fill(threshold.text or "", core.words(plan, v, book, at)))
    if crossed != book.crossed or told != book.told:
        book = with_extra(book, crossed=crossed, told=told)
    return book, tuple(notices), (*notes, *more)


# -- the host's functions -----------------------------------------------------------------------


def _resolve(core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, notes: tuple[Note, ...]) -> Result:
    after = State(v, at, s.n + 1, call, (), s.book)
    return after, resolve_decision(core, after, at, rule.origin, notes)


def asked_for(core: Core, s: State) -> str:
    """The function of the host whose answer is awaited."""
    asked = s.vars[core.asked]
    if asked < core.text_asked:
        return core.question(core.occasions[asked - 1], s.vars)
    if asked == core.text_asked:
        return core.policy.finalization.using or ""
    assert s.call is not None
    assert s.call.failure is not None
    step = core.switching.plans[asked - core.text_asked - 1].rule.then[s.call.failure.step]
    return step.name if isinstance(step, Consult) else ""


def resolve_decision(core: Core, s: State, at: int, because: str, notes: tuple[Note, ...] = ()) -> AnyDecision:
    """Ask for the text that the machine waits for: an instruction, or the reactive refusal."""
    asked, deadline = s.vars[core.asked], core.amounts.deadline(s.vars, s.book.run, final=True)
    if asked > core.text_asked:
        return Resolve(s.n, asked_for(core, s), "llm_failure", 0, 0, deadline, because, notes)
    plan = core.pending_plan(s.vars) if asked == core.text_asked else core.occasions[asked - 1].plan
    resource = plan.resource if plan else core.occasions[asked - 1].resource
    used, maximum = core.standing(plan, s.vars, s.book, at) if plan else (0, 0)
    return Resolve(s.n, asked_for(core, s), resource, used, maximum, deadline, because, notes)


def _resolve_again(core: Core, s: State, at: int) -> AnyDecision:
    return resolve_decision(core, s, at, "default: resolve")
