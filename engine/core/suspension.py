"""Suspension: a run that only people can continue, what it asks of them, and the time that stands still meanwhile.

Section 9 of the semantics. Nothing is in flight while a run is suspended; its state is all that is needed to go on.
What an answer does is decided in ``executions`` and ``extending``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from engine.core.core import PHASE, Core, Values
from engine.core.decisions import AnyDecision, Note, Request, Suspend, Wait
from engine.core.ends import Result, suspended, wake_at
from engine.core.events import AnyEvent, ToolEnded
from engine.core.machine.machine import Phase, Rule
from engine.core.state import ASKED, EXTERNAL, CallState, RoundCall, State, with_extra


def question(
    core: Core,
    s: State,
    at: int,
    v: Values,
    rule: Rule,
    call: CallState | None,
    notes: tuple[Note, ...] = (),
    waiting: tuple[RoundCall, ...] = (),
    ref: str = "",
) -> Result:
    """Ask a person whether a limit may grow. ``waiting`` are the calls of a reply, ``ref`` names it."""
    until = core.amounts.people_until(v, s.book.run)
    book = with_extra(s.book, until=until, held=ref)
    after = State(v, at, s.n + 1, call, waiting, book)
    return after, Suspend(after.n, requests(core, after), wake_at(after), rule.origin, notes)


def requests(core: Core, s: State) -> tuple[Request, ...]:
    """What people are asked, or have to bring, in the order of the model's calls; empty if nobody is asked."""
    if s.vars[PHASE] == Phase.ASKING:
        plan = core.questioned(s.vars)
        used, maximum = core.standing(plan, s.vars, s.book, s.at)
        if plan.counted:  # more may have been taken than there is, and a grant fills that up first
            used = max(used, core.taken(plan, s.vars, s, s.book.pools))
        limit, until = plan.limit.id, s.book.until
        return (Request(limit, "extension", "", plan.resource, used, maximum, plan.up_to(), until),)
    return tuple(
        Request(c.id, "tool" if c.status == ASKED else "external", c.tool, until=c.deadline)
        for c in s.round
        if c.status in (ASKED, EXTERNAL)
    )


Handler = Callable[[Core, State, Any], Result]


def decided(core: Core, handler: Handler, s: State, event: AnyEvent) -> Result:
    """What a handler decides; before it, the time for which the run was suspended is taken from its walls."""
    extra = s.book.extra
    now = s if extra is None or extra.paused is None else _caught_up(core, s, event.at)
    after, decision = handler(core, now, event)
    if after is now:
        return s, decision
    if suspended(after):
        return _paused(core, after, decision, told=isinstance(event, ToolEnded))
    extra = after.book.extra
    if extra is not None and extra.paused is not None:
        after = structs.replace(after, book=with_extra(after.book, paused=None))
    return after, decision


def _caught_up(core: Core, s: State, at: int) -> State:
    """The walls have stood still up to now."""
    paused = s.book.paused
    assert paused is not None
    stood = at - paused
    if stood <= 0:
        return s
    run = structs.replace(s.book.run, started=s.book.run.started + stood)
    run = with_extra(run, stood=run.stood + stood)
    run = structs.replace(run, deadline=core.amounts.deadline(s.vars, run, final=True))
    return structs.replace(s, at=max(s.at, at), book=with_extra(structs.replace(s.book, run=run), paused=at))


def _paused(core: Core, s: State, decision: AnyDecision, *, told: bool) -> Result:
    """Only people are awaited: time stands still, and where nothing else says so, the decision does."""
    began = s.book.paused is None
    if began:
        s = structs.replace(s, book=with_extra(s.book, paused=s.at))
    if isinstance(decision, Wait) and (began or told):
        s = structs.replace(s, n=s.n + 1)
        return s, Suspend(s.n, requests(core, s), wake_at(s), decision.because or "default: suspend", decision.notes)
    return s, decision
