"""What a person has answered about a limit: it grows, or the ladder moves on, and what was interrupted goes on.

Section 6 of the semantics. Before a call that is the call itself; after a reply its tool calls, which are judged as
if they had just come, while what the reply has used is charged once.
"""

from __future__ import annotations

from msgspec import structs

from engine.core.admission import admit
from engine.core.core import PHASE, Core, Values, illegal_phase
from engine.core.decisions import Illegal, Note
from engine.core.ends import Result, passed, sticky
from engine.core.events import ExtensionAnswered, Proposed
from engine.core.failing import or_next_step
from engine.core.machine.machine import Phase, Rule
from engine.core.machine.plan import Plan
from engine.core.rounds import propose
from engine.core.state import NO_TIME, RoundCall, State, with_extra


def extension_answered(core: Core, s: State, e: ExtensionAnswered) -> Result:
    """A grant raises the maximum; a refusal, no answer in time, and nobody to ask are the ladder's next step."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if phase != Phase.ASKING:
        return s, Illegal(illegal_phase(s, f"an answer about {e.id}"))
    plan = core.questioned(s.vars)
    if e.id != plan.limit.id:
        return s, Illegal(f"an answer about {e.id} while {plan.limit.id} is asked about")
    if e.amount < 0:
        return s, Illegal(f"{e.amount} more {e.id} is no grant")
    if e.at >= s.book.run.deadline:
        return passed(core, s, e.at)
    granted = e.answer == "granted" and (e.answered or e.at) < s.book.until
    v, rule = core.react.extension(s.vars, int(granted), e.amount)
    v = core.grown(plan, v, s, e.at) if granted else v
    notes = (_note(core, s, e, plan, v, rule, granted),)
    calls, ref = s.round, s.book.held
    book = with_extra(s.book, until=NO_TIME, held="")
    after = State(v, e.at, s.n, s.call, (), book)
    if calls:
        state, decision = propose(core, after, e.at, v, tuple(map(_proposed, calls)), ref)
        return state, structs.replace(decision, notes=(*notes, *decision.notes))
    assert s.call is not None
    return or_next_step(core, after, admit(core, after, e.at, s.call, further=s.call.attempt > 0, notes=notes), notes)


def _note(core: Core, s: State, e: ExtensionAnswered, plan: Plan, v: Values, rule: Rule, granted: bool) -> Note:
    used, maximum = core.standing(plan, v, s.book, e.at)
    if not granted:
        why = {"refused": "was refused", "nobody": "has nobody to grant it"}.get(e.answer, "was not granted in time")
        return Note("withheld", f"more {plan.limit.id} {why}", plan.resource, used, maximum, rule.origin)
    before = core.standing(plan, s.vars, s.book, e.at)[1]
    text = f"a person has granted {maximum - before} more {plan.limit.id}"
    if e.amount > plan.up_to():
        text += f", the most that is asked for, instead of {e.amount}"
    return Note("granted", text, plan.resource, used, maximum, rule.origin)


def _proposed(call: RoundCall) -> Proposed:
    kind = call.kind or "function"
    return Proposed(call.id, call.tool, call.args, kind, not call.unknown, call.problem)  # type: ignore[arg-type]
