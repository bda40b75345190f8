"""The rules about how a run is ended from outside: cancellation, time, and the last end of what was in flight."""

from __future__ import annotations

from engine.core.machine.expr import TRUE, Eq, Lit, Var, any_of
from engine.core.machine.machine import Effect, Phase, Rule
from engine.core.machine.rules import Context, late, to

_IN_FLIGHT = any_of(Eq(Var("phase"), Lit(Phase.CALLING)), Eq(Var("phase"), Lit(Phase.TOOLS)))


def cancel(c: Context) -> tuple[Rule, ...]:
    """Somebody wants the run to end: at once, or when what is in flight has been stopped."""
    stop, end = to(Phase.STOPPING), to(Phase.ENDED)
    return (
        Rule("cancel.stop", _IN_FLIGHT, stop, Effect("stop", word="cancelled"), "default: cancel"),
        Rule("cancel.end", TRUE, end, Effect("end", word="cancelled"), "default: cancel"),
    )


def tick(c: Context) -> tuple[Rule, ...]:
    """Time has passed: only a deadline does anything."""
    stops = late(c, "tick", _IN_FLIGHT, "stop")
    return (*stops, *late(c, "tick"), Rule("tick.wait", TRUE, (), Effect("wait"), "default: tick"))


def stopped(c: Context) -> tuple[Rule, ...]:
    """The last of what was in flight has ended."""
    return (Rule("stopped", TRUE, to(Phase.ENDED), Effect("end", word="stopped"), "default: stop"),)
