"""What the host's functions answer: the text of a refusal, an instruction, or what to do about a failure."""

from __future__ import annotations

from msgspec import structs

from engine.core.admission import admit, asked_for
from engine.core.core import PHASE, Core, illegal_phase
from engine.core.decisions import Illegal, Note
from engine.core.ends import Result, end, sticky
from engine.core.events import Resolved
from engine.core.failing import consulted, or_next_step
from engine.core.machine.machine import Phase
from engine.core.rounds import text_resolved
from engine.core.state import State


def resolved(core: Core, s: State, e: Resolved) -> Result:
    """The function that a ``Resolve`` asked for has answered."""
    phase = s.vars[PHASE]
    if phase in (Phase.STOPPING, Phase.ENDED):
        return sticky(core, s)
    if phase != Phase.RESOLVING:
        return s, Illegal(illegal_phase(s, f"{e.name} resolved"))
    if e.name != (name := asked_for(core, s)):
        return s, Illegal(f"{e.name} resolved while {name} was asked for")
    asked = s.vars[core.asked]
    if asked < core.text_asked:
        return _instruction_resolved(core, s, e)
    return text_resolved(core, s, e) if asked == core.text_asked else consulted(core, s, e)


def _instruction_resolved(core: Core, s: State, e: Resolved) -> Result:
    """The host's function has answered; the call it was asked for is admitted now, if it still can be."""
    ok = e.status in ("ok", "empty")
    v, rule = core.react.resolved(s.vars, int(ok), core.chosen(s.vars, e.step) if ok else 0)
    assert s.call is not None
    notes: tuple[Note, ...] = ()
    if rule.effect.kind == "end":
        lost = end(core, s, e.at, v, rule, error=f"{e.name} failed")
        return or_next_step(core, State(v, e.at, s.n, s.call, (), s.book), lost)
    if rule.effect.word == "resolver_failed":
        text = f"{e.name} {'timed out' if e.status == 'timed_out' else 'failed'}: the next step of the ladder follows"
        notes = (Note("warn", text, core.plans[rule.effect.limit].resource, because=rule.origin),)
    after = State(v, e.at, s.n, s.call, (), s.book)
    ref = e.ref if e.status == "ok" else ""
    admitted = admit(core, after, e.at, s.call, further=False, notes=notes, ref=ref)
    # The instruction that the host has given is of use for this call alone.
    ready = structs.replace(after, vars=s.vars) if rule.effect.word == "resolved" else after
    return or_next_step(core, ready, admitted, notes)
