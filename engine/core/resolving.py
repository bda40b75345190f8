"""What the host's functions answer: the text of a refusal, an instruction, or what to do about a failure."""

from __future__ import annotations

from engine.core.admission import asked_for, instruction_resolved
from engine.core.core import PHASE, Core, illegal_phase
from engine.core.decisions import Illegal
from engine.core.ends import Result, sticky
from engine.core.events import Resolved
from engine.core.failing import consulted
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
        return instruction_resolved(core, s, e)
    return text_resolved(core, s, e) if asked == core.text_asked else consulted(core, s, e)
