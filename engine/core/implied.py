"""Implied rounds: hosts that show no whole replies ask for each tool by itself, before its reply or without one.

The first tool call that nobody has judged opens a round of the model call in hand. Further ones join it
until the next call is asked for, so that a reply is one round in whatever order its parts come; a
reply that comes later is merged with what was judged. Verdicts themselves are ``rounds``' business.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from engine.core import executions, replies
from engine.core.core import PHASE, Core, Values
from engine.core.decisions import Ask, Continue, End, Execute, Note, Reply, RunTools, Stop, Wait
from engine.core.ends import Result, closing, end, passed, replied, stop, unanswered, wake_at
from engine.core.events import AWAITED, ModelReplied, Proposed, ToolRequested
from engine.core.executions import find, verdict_again
from engine.core.machine.machine import Phase, Rule
from engine.core.rounds import Fold, round_number, tool_deadline
from engine.core.state import ASKED, EXTERNAL, IMPLIED, REFUSED, REPLIED, STARTED, WAITING, RoundCall, State, with_extra


def tool_requested(core: Core, s: State, e: ToolRequested) -> Result:
    """Just before a tool starts, whether or not its reply was shown."""
    if e.id and find(s.round, e.id) < 0 and _may_join(s):
        return _joined(core, s, e)
    return executions.tool_requested(core, s, e)


def model_replied(core: Core, s: State, e: ModelReplied) -> Result:
    """A reply, whether or not some of its tools were asked for before."""
    call, live = s.call, s.vars[PHASE] in (Phase.READY, Phase.TOOLS)
    if live and _mark(s) and call is not None and (call.id, call.attempt) == (e.call, e.attempt):
        return _merged(core, s, e)
    return replies.model_replied(core, s, e)


def _mark(s: State) -> int:
    return 0 if s.call is None else s.call.implied


def _may_join(s: State) -> bool:
    if "rounds" not in s.book.run.lacks:
        return False
    return s.vars[PHASE] == Phase.CALLING or (s.vars[PHASE] in (Phase.READY, Phase.TOOLS) and _mark(s) != 0)


# -- a tool without its reply -----------------------------------------------------------------------


def _joined(core: Core, s: State, e: ToolRequested) -> Result:
    assert s.call is not None
    v, mark = s.vars, _mark(s)
    notes: tuple[Note, ...] = ()
    call = RoundCall(e.id, e.name, "", WAITING)
    if not mark:
        v, rule, notes = _opened(core, s, e.at)
        if rule.effect.kind == "end":
            why = "final" if rule.effect.word == "finalization_disobeyed" else "stopped"
            return end(core, s, e.at, v, rule, notes, close=(closing(0, call, why),))
        mark = IMPLIED if rule.effect.kind == "round" else REFUSED
    elif e.at >= s.book.run.deadline:
        return _too_late(core, s, e.at, call)
    s = structs.replace(s, vars=v, call=with_extra(s.call, implied=mark))
    if mark == REFUSED:
        plan = core.pending_plan(v)
        after = structs.replace(s, at=e.at, round=(*s.round, replied(call, plan.resource)))
        text = core.refusal(plan, e.name, v, s.book, e.at)
        return after, Reply(len(s.round), e.id, text, plan.resource, because=plan.origin, notes=notes)
    return _judged(core, s, e, notes)


def _opened(core: Core, s: State, at: int) -> tuple[Values, Rule, tuple[Note, ...]]:
    """The round is admitted, refused, or ends the run; in its midst nobody is asked, for a text or about a limit."""
    v, rule = core.react.round(s.vars, core.amounts.states(s.vars, s.book, at, rounds=True), 0)
    notes: tuple[Note, ...] = ()
    while rule.effect.kind in ("again", "suspend"):
        if rule.effect.kind == "suspend":
            v, rule = core.react.extension(v, 0, 0)
        v, note = core.extended(rule, v, s, at)
        notes = (*notes, note)
        v, rule = core.react.round(v, core.amounts.states(v, s.book, at, rounds=True), 0)
    if rule.effect.kind == "resolve":
        v, rule = core.react.resolved(v, 0, 0)
    return v, rule, notes


def _judged(core: Core, s: State, e: ToolRequested, notes: tuple[Note, ...]) -> Result:
    fold = Fold(core, s, e.at, s.vars, s.n + 1, unasked=1)
    fold.call(len(s.round), Proposed(e.id, e.name, e.args, registered=e.registered))
    v, rule = core.react.judged(fold.values, fold.over_above)
    (verdict,), (call,), notes = fold.verdicts, fold.calls, (*notes, *fold.notes)
    book = with_extra(s.book, tool_counts=fold.counts, breakers=fold.breakers)
    if rule.effect.kind == "end":
        closed = (verdict,) if isinstance(verdict, Reply) else ()
        return end(core, structs.replace(s, book=book), e.at, v, rule, notes, close=closed)
    if isinstance(verdict, Execute):
        began = e.at if core.tools.facts(e.name).breakers else 0
        call = structs.replace(call, status=STARTED, attempt=1, deadline=verdict.deadline, started=began)
    after = State(v, e.at, s.n + 1, s.call, (*s.round, call), book)
    return after, structs.replace(verdict, notes=notes)


def _too_late(core: Core, s: State, at: int, call: RoundCall) -> Result:
    after, decision = passed(core, s, at)
    if not isinstance(decision, Stop | End):
        return after, decision
    return after, structs.replace(decision, close=(*decision.close, closing(len(s.round), call, "stopped")))


# -- a reply whose tools are known ------------------------------------------------------------------


def _merged(core: Core, s: State, e: ModelReplied) -> Result:
    """Charge it, judge the calls that are new, and give all verdicts in the model's order."""
    assert s.call is not None
    refused = _mark(s) == REFUSED
    shown = with_extra(s.call, implied=0)
    s, notes = replies.charged_for(core, structs.replace(s, call=shown), e, shown)
    if core.amounts.metered and (s.call is None or s.call.charged is None):
        v, rule = core.react.unmetered(s.vars)
        return _over(core, s, e, v, rule, notes)
    v, functions, output, extended = replies.sorted_out(core, s, e)
    notes, s = (*notes, *extended), structs.replace(s, at=e.at, vars=v)
    if output:
        v, rule = core.react.answered(v)
        return _over(core, s, e, v, rule, notes)
    new = tuple(c for c in functions if find(s.round, c.id) < 0)
    if not new:
        return _settled(core, s, functions, notes, "default: round")
    if refused:
        plan = core.pending_plan(v)
        added = tuple(replied(RoundCall(c.id, c.name, "", WAITING), plan.resource) for c in new)
        return _settled(core, structs.replace(s, round=(*s.round, *added)), functions, notes, plan.origin)
    fold = Fold(core, s, e.at, v, s.n + 1, unasked=1)
    for i, call in enumerate(new):
        fold.call(i, call)
    v, rule = core.react.judged(fold.values, fold.over_above)
    book = with_extra(s.book, tool_counts=fold.counts, breakers=fold.breakers)
    if rule.effect.kind == "end":
        closed = tuple(x for x in fold.verdicts if isinstance(x, Reply))
        return end(core, structs.replace(s, book=book), e.at, v, rule, (*notes, *fold.notes), close=closed)
    after = State(v, e.at, s.n, s.call, (*s.round, *fold.calls), book)
    return _settled(core, after, functions, (*notes, *fold.notes), rule.origin, fold.verdicts)


def _over(core: Core, s: State, e: ModelReplied, v: Values, rule: Rule, notes: tuple[Note, ...]) -> Result:
    """The reply ends the run as it would in any host; what it has started by now is stopped first."""
    named = [c for c in e.calls if c.kind in AWAITED]
    known = [s.round[i] if (i := find(s.round, c.id)) >= 0 else RoundCall(c.id, c.name, "", WAITING) for c in named]
    s = structs.replace(s, at=e.at, round=(*known, *(c for c in s.round if c not in known)))
    if rule.effect.kind == "stop":
        return stop(core, s, e.at, v, rule, notes, ref=e.ref)
    return end(core, s, e.at, v, rule, notes, ref=e.ref, close=unanswered(s))


def _settled(
    core: Core,
    s: State,
    functions: tuple[Proposed, ...],
    notes: tuple[Note, ...],
    because: str,
    judged: Sequence[Execute | Ask | Reply] = (),
) -> Result:
    """The round is an ordinary one from here on, in the model's order. ``judged``: verdicts that are new."""
    running = s.vars[PHASE] == Phase.TOOLS
    named = [s.round[find(s.round, c.id)] for c in functions]
    ordered = (*named, *(c for c in s.round if c not in named))
    n = s.n + 1
    after = State(s.vars, s.at, n if functions else s.n, s.call, ordered if running else (), s.book)
    if not functions:
        return after, Wait(wake_at(after), because, notes) if running else Continue(because, notes)
    new = {verdict.id: verdict for verdict in judged}
    verdicts = tuple(
        structs.replace(new[call.id], i=i) if call.id in new else _verdict(core, s, n, i, call)
        for i, call in enumerate(named)
    )
    return after, RunTools(n, round_number(core, s.vars), verdicts, not running, because, notes)


def _verdict(core: Core, s: State, n: int, i: int, call: RoundCall) -> Execute | Ask | Reply:
    if call.status == REPLIED:
        return verdict_again(core, s, i, call)
    if call.status == ASKED:
        return Ask(n, i, call.id, call.deadline, core.tools.facts(call.tool).ask_origin)
    if call.status == EXTERNAL:
        return Ask(n, i, call.id, call.deadline, "default: execute", external=True)
    timeout = core.tools.facts(call.tool).timeout
    deadline = call.deadline if call.attempt else tool_deadline(core, s, s.vars, s.at, timeout)
    return Execute(n, i, call.id, max(1, call.attempt), deadline, "default: execute")
