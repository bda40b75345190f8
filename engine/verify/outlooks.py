"""What is decided, as an outsider sees it, and how much it allows: the measure by which two policies are compared.

Nothing here knows which line decided. ``Outlook`` of a machine's effect and of a decision of ``step`` are the same
words, so that what a search finds can be held to what is played.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.core import decisions as d
from engine.core.ladders import Consult, Fallback, Finalize
from engine.core.machine.machine import Effect
from engine.core.machine.rules import Context

MAIN = "main"
"""The client that calls go to unless a policy says otherwise."""

GOES_ON, PEOPLE, LAST, ANSWERED, OVER = 4, 3, 2, 1, 0
"""How much a decision allows: the run goes on, somebody is asked, one last call, it is answered, the run is over."""


BACK_TO_FAILURE = "again to the failure"
"""The host was consulted about a failure, and its ladder is looked at again."""


class Outlook(NamedTuple):
    """A decision in a word, with what of it can be seen from outside, and its rank."""

    word: str
    about: str = ""
    rank: int = GOES_ON

    def __str__(self) -> str:
        return f"{self.word} ({self.about})" if self.about else self.word


_RANKS = {
    "final": LAST,
    "refuse": ANSWERED,
    "refuse_child": ANSWERED,
    "reply": ANSWERED,
    "queue_child": PEOPLE,
    "suspend": PEOPLE,
    "ask": PEOPLE,
    "resolve": PEOPLE,
    "stop": OVER,
    "end": OVER,
}

_WORDS = {
    "call": "call",
    "final": "final call",
    "refuse": "skip",
    "reply": "skip",
    "refuse_child": "refuse",
    "queue_child": "queue",
    "start_child": "spawn",
    "execute": "run",
    "suspend": "ask a person",
    "ask": "ask a person",
    "resolve": "ask the host",
}

_STATUS = {
    "completed": "completed",
    "tool_answer": "completed",
    "finalized": "finalized",
    "cancelled": "cancelled",
    "tool_stop": "cancelled",
    "incomplete": "incomplete",
    "wall_above": "incomplete",
    "above": "incomplete",
    "rounds_above": "incomplete",
    "tools_above": "incomplete",
    "stopped": "stopped",
}
"""How a run ends, by the word of the rule; every other word is the reason of a failure."""


def of_effect(c: Context, event: str, effect: Effect) -> Outlook:
    """What a reaction of a machine looks like."""
    kind = effect.kind
    rank = _RANKS.get(kind, GOES_ON)
    about = ""
    if kind in ("end", "stop"):
        about = _STATUS.get(effect.word, "failed")
    elif event == "failed" and kind == "continue" and effect.word == "pending":
        return Outlook("go on to a final call", "", LAST)
    elif event == "resolved" and effect.ladder:
        return Outlook(BACK_TO_FAILURE)
    elif kind == "suspend" and effect.limit >= 0:
        about = c.plans[effect.limit].limit.id
    elif kind in ("fallback", "resolve"):
        about = _named(c, effect)
    return Outlook(_WORDS.get(kind, kind), about, rank)


def _named(c: Context, effect: Effect) -> str:
    """Which clients a call may go to, or which functions of the host are asked there."""
    if effect.ladder:
        step = dict(c.failures[effect.ladder - 1].steps())[effect.step]
        if isinstance(step, Fallback):
            return ", ".join(step.clients) + {"run": "", "call": ", this call"}.get(step.scope, f", {step.ms} ms")
        return step.name if isinstance(step, Consult) else ""
    if effect.limit < 0 or effect.word == "text":
        return c.policy.finalization.using or ""
    steps = c.plans[effect.limit].steps
    names = [s.name if isinstance(s, Consult) else s.using or "" for s in steps if isinstance(s, Consult | Finalize)]
    return ", ".join(name for name in names if name)


def of_decision(decision: d.AnyDecision) -> tuple[Outlook, ...]:
    """What a decision of ``step`` looks like; of a round, each verdict."""
    match decision:
        case d.Call(final=final, client=client):
            to = "" if client == MAIN else client
            return (Outlook("final call", to, LAST) if final else Outlook("call", to),)
        case d.RunTools(verdicts=verdicts):
            return tuple(outlook for verdict in verdicts for outlook in of_decision(verdict))
        case d.Execute():
            return (Outlook("run"),)
        case d.Reply():
            return (Outlook("skip", "", ANSWERED),)
        case d.Ask():
            return (Outlook("ask a person", "", PEOPLE),)
        case d.Suspend(requests=requests):
            about = ", ".join(sorted(r.id if r.kind == "extension" else r.tool for r in requests))
            return (Outlook("ask a person", about, PEOPLE),)
        case d.Resolve(name=name):
            return (Outlook("ask the host", name, PEOPLE),)
        case d.Queue():
            return (Outlook("queue", "", PEOPLE),)
        case d.Refuse():
            return (Outlook("refuse", "", ANSWERED),)
        case d.Stop():
            return (Outlook("stop", "", OVER),)
        case d.End(outcome=outcome):
            return (Outlook("end", outcome.status, OVER),)
        case _:
            return (Outlook(type(decision).__name__.lower()),)


def compared(old: tuple[Outlook, ...], new: tuple[Outlook, ...]) -> tuple[Outlook, Outlook] | None:
    """The first part in which two decisions differ, ``None`` if they look alike."""
    for one, other in zip(old, new, strict=False):
        if one != other:
            return one, other
    if len(old) == len(new):
        return None
    rest = Outlook("nothing more", "", ANSWERED)
    return (old[len(new)], rest) if len(old) > len(new) else (rest, new[len(old)])
