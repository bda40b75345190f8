"""Between the loop and the toolkit: events become calls of the loop, what it did becomes decisions. Numbers, times and
texts may be anything; what counts is what ``engine.testing.gist`` looks at."""

from __future__ import annotations

from desk import Desk

from engine.core import decisions as d
from engine.core import events as e
from engine.core.state import NO_TIME, Outcome


def execute(desk: Desk, event: e.AnyEvent) -> d.AnyDecision:
    """What the loop does on an event."""
    match event:
        case e.RunStarted():
            return d.Continue()
        case e.CallRequested(call=call):
            final = desk.next_call()
            tools = "strip" if final else "offer"
            return d.Call(0, call, 1, "main", NO_TIME, final=final, tools=tools)
        case e.ModelReplied(text=text, calls=calls):
            return replied(desk, text, calls)
        case e.ModelFailed() if desk.outcome is None:
            desk.failed()
            return ending(desk)
        case e.ModelFailed():
            return ending(desk)
        case e.ToolRequested(id=id):
            return d.Execute(0, 0, id, 1, NO_TIME)
        case e.ToolEnded(id=id):
            return d.Continue() if desk.ended(id) else d.Wait(NO_TIME)
        case e.Cancelled():
            desk.cancelled()
            return d.Stop(0, NO_TIME, cancel_call="in flight")
    return d.Wait(NO_TIME)


def replied(desk: Desk, text: bool, calls: tuple[e.Proposed, ...]) -> d.AnyDecision:
    """A round of tools, or the end."""
    names = [(call.id, "" if call.problem else call.name) for call in calls]
    allowed = desk.replied(text, names)
    if desk.outcome is not None:
        return ending(desk)
    verdicts = tuple(
        d.Execute(0, place, call.id, 0, NO_TIME) if may else d.Reply(place, call.id, "no", "denied")
        for place, (call, may) in enumerate(zip(calls, allowed, strict=True))
    )
    return d.RunTools(0, 0, verdicts, complete=not desk.running)


def ending(desk: Desk) -> d.End:
    """How the run has ended."""
    assert desk.outcome is not None
    status, reason = desk.outcome
    return d.End(0, Outcome(status, reason))
