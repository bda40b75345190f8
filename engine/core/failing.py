"""Failures: the ladder of a failed attempt, its retries, its fallbacks, and what the host is consulted about.

Section 5 of the semantics. The machine says which step is taken; waits, clients and names come from here.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.admission import admit, resolve_decision
from engine.core.core import REASON, Core, Values
from engine.core.decisions import Continue, End, Note, Reply
from engine.core.decisions import Retry as RetryDecision
from engine.core.ends import Result, end
from engine.core.events import Resolved
from engine.core.ladders import FailureStep, Fallback, Retry
from engine.core.machine.machine import Rule
from engine.core.state import CallExtra, CallState, Failure, State, with_extra
from engine.core.switching import retracted, wait
from engine.core.texts import duration


def fail(
    core: Core, s: State, at: int, v: Values, failure: Failure, notes: tuple[Note, ...], close: tuple[Reply, ...] = ()
) -> Result:
    """Take the first step of the failure's ladder that can be taken."""
    call, book = s.call, s.book
    assert call is not None
    states = core.amounts.states(v, book, at)
    final = v[REASON] > 0
    # The attempt's own time may end before the run's: then it is an ordinary time-out.
    deadline = core.amounts.deadline(v, book.run, final)
    delivered = failure.shown and "retract" in book.run.lacks
    cut = failure.reason in ("timeout", "aborted") and at >= deadline
    chosen, blocked = core.switching.chosen(failure.reason), 0
    left = core.retries_left(chosen.plan.index, v) if chosen else {}
    while True:
        ladders = core.switching.fields(failure, chosen, call, book, at, deadline, left, blocked)
        after, rule = core.react.failed(v, states, ladders, int(cut), int(delivered))
        kind, step = rule.effect.kind, rule.effect.step
        if kind == "end":
            return end(core, s, at, after, rule, notes, ref=failure.ref, error=failure.reason, close=close)
        if kind == "continue":
            return State(after, at, s.n, call, (), book), Continue(rule.origin, notes)
        if kind == "retry":
            retry_step = _step_of(core, rule)
            assert isinstance(retry_step, Retry)
            used = retry_step.times - left[step]
            due = at + wait(retry_step, used, failure)
            return retry_later(
                s, at, after, rule, retry_step, used, due, failure.reason, notes, retracted(call, failure)
            )
        if kind == "resolve":
            return _consult(core, s, at, after, rule, call, structs.replace(failure, step=step), notes)
        result = _fall_back(core, s, at, after, rule, call, failure, notes)
        if result[1].__class__ is not End:
            return result
        # It was not admitted, so it is a step that cannot be taken.
        blocked |= 1 << step


def _step_of(core: Core, rule: Rule) -> FailureStep:
    return core.switching.plans[rule.effect.ladder - 1].rule.then[rule.effect.step]


def retry_later(
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    step: Retry,
    used: int,
    due: int,
    reason: str,
    notes: tuple[Note, ...] = (),
    retract: str = "",
) -> Result:
    """A further attempt of the failed call at ``due`` (ms); ``used`` of them the step has granted before."""
    assert s.call is not None
    text = f"retrying in {duration(due - at)} ({used + 1} of {step.times}): {reason}"
    note = Note("retry", text, "", used + 1, step.times, rule.origin)
    return retry(s, at, v, s.call, rule.origin, (*notes, note), due, retract)


def _fall_back(
    core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, failure: Failure, notes: tuple[Note, ...]
) -> Result:
    step = _step_of(core, rule)
    assert isinstance(step, Fallback)
    client = core.switching.next_client(step, call, s.book)
    assert client is not None
    place = structs.replace(failure, step=rule.effect.step)
    wanted = CallState(_next_id(call.id), 0, client.name, client.model, call.input_tokens, client.max_output)
    # What has been charged for it is remembered as for any earlier attempt.
    failed = structs.replace(with_extra(call, failure=place), charged=None, previous=None)
    wanted = with_extra(wanted, instead_of=failed)
    missing = tuple(
        Note("skipped", f"the host has no client named {name}", because=rule.origin)
        for name in core.switching.missing(step, s.book)
    )
    text = f"{call.client} failed ({failure.reason}): {client.name} is asked instead"
    note = Note("fallback", text, because=rule.origin)
    ready = State(v, at, s.n, call, (), s.book)
    return admit(core, ready, at, wanted, further=False, notes=(*notes, *missing, note))


def or_next_step(core: Core, ready: State, result: Result, notes: tuple[Note, ...] = ()) -> Result:
    """``result``, or, where a fallback was not admitted after somebody was asked, the next step of its ladder.

    ``ready`` is the state in which the fallback, its call, was to be admitted.
    """
    wanted = ready.call
    failed = None if wanted is None else wanted.instead_of
    if failed is None or not isinstance(result[1], End):
        return result
    failure, known = failed.failure, wanted and wanted.previous
    assert failure is not None
    assert known is not None
    call = structs.replace(with_extra(failed, failure=None), charged=known.charged, previous=known.previous)
    before = State(ready.vars, ready.at, ready.n, call, (), ready.book)
    return fail(core, before, ready.at, ready.vars, structs.replace(failure, step=failure.step + 1), notes)


def _next_id(id: str) -> str:
    """The name of the call that follows: the next number where names are numbers."""
    return str(int(id) + 1) if id.isdecimal() else f"{id}+"


def _consult(
    core: Core, s: State, at: int, v: Values, rule: Rule, call: CallState, failure: Failure, notes: tuple[Note, ...]
) -> Result:
    waiting = State(v, at, s.n + 1, with_extra(call, failure=failure), (), s.book)
    return waiting, resolve_decision(core, waiting, at, rule.origin, notes)


def consulted(core: Core, s: State, e: Resolved) -> Result:
    """The host has chosen a later step of the failure's ladder; if it has not, the next step follows."""
    call = s.call
    assert call is not None
    assert call.failure is not None
    failure = call.failure
    notes: tuple[Note, ...] = ()
    v, rule = core.react.resolved(s.vars, int(e.status == "ok"), 0)
    plan = core.switching.plans[rule.effect.ladder - 1]
    later = [i for i, step in plan.steps() if i > failure.step and step.do == e.step and e.status == "ok"]
    if not later:
        text = f"{e.name} chose no later step: the next one follows"
        notes = (Note("warn", text, because=rule.origin),)
    failure = structs.replace(failure, step=later[0] if later else failure.step + 1)
    after = State(v, e.at, s.n, with_extra(call, failure=None), (), s.book)
    return fail(core, after, e.at, v, failure, notes)


def retry(
    s: State,
    at: int,
    v: Values,
    call: CallState,
    because: str,
    notes: tuple[Note, ...],
    not_before: int,
    retract: str = "",
) -> Result:
    """A further attempt of the call, not before a time (ms)."""
    n = s.n + 1
    waiting = CallState(
        call.id,
        call.attempt,
        call.client,
        call.model,
        call.input_tokens,
        call.max_output,
        call.charged,
        call.previous,
        CallExtra(call.pauses, not_before=not_before),
    )
    after = State(v, at, n, waiting, (), s.book)
    return after, RetryDecision(n, call.id, call.attempt + 1, call.client, not_before, because, notes, retract)
