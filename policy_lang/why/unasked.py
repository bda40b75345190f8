"""Decisions for which no rule of the machine is asked: what stands from before, what is only told, what cannot be."""

from __future__ import annotations

from engine.core import decisions as d
from engine.core import events as e
from engine.core.core import PHASE
from engine.core.machine.machine import Phase
from engine.core.state import State


def unasked(event: e.AnyEvent, decision: d.AnyDecision, before: State) -> str:
    """Why no rule had to be asked."""
    if isinstance(decision, d.Illegal):
        return f"the event cannot happen here: {decision.problem}"
    if before.vars[PHASE] in (Phase.ENDED, Phase.STOPPING) and isinstance(decision, d.End | d.Stop):
        ended = before.vars[PHASE] == Phase.ENDED
        return "the run had ended already: its outcome stands" if ended else "the run was being stopped already"
    match event, decision:
        case e.UsageReported(), _:
            return "usage is only told: it is charged, and steers nothing by itself"
        case e.PoolsSeen(), _:
            return "what others of the tree have used is only told; it counts in the next decision"
        case e.ChildEnded(), _:
            return "the end of a child is only told; what it used has been charged by the ledger"
        case e.RunStarted(), _:
            return "the run had begun already"
        case e.CallRequested(), d.Resolve():
            return "the host's function that was asked has not answered yet"
        case e.RetryDue(), d.Retry():
            return "the wait is not over yet"
        case e.ToolRequested(), d.Execute():
            return "its verdict was given with its round; neither time nor a breaker stands against it since"
        case e.ToolRequested(), _:
            return "it was answered when its round was judged, and that stands"
        case e.ModelReplied(), d.RunTools():
            return "its tools were judged when they were asked for, before the reply was shown: that stands"
        case e.ToolEnded(status="deferred"), _:
            people = ", and only people are awaited now" if isinstance(decision, d.Suspend) else ""
            return f"the tool has taken the call and brings its result later{people}"
        case e.ToolEnded(), d.Execute(attempt=attempt):
            return f"the tool's own `retry` grants attempt {attempt}, which ends before its time is over"
        case _, d.Suspend():
            return "only people are awaited now"
    return "it came too late or changes nothing: it is only taken note of"
