"""One round with many tools, for claims about how many there are: a search tries small rounds only."""

from __future__ import annotations

from engine.core import decisions as d
from engine.core import events as e
from engine.core.claims import Always, AtMost, Claim, Compare, Within
from engine.core.messages import Usage
from engine.core.step import Compiled
from engine.verify.cases import NoCase, Tools
from engine.verify.promises import ClaimWatch
from engine.verify.replay import CLIENT, Played

MOST = 2_000
"""Tools that one round may be tried with."""


def widest(compiled: Compiled, claim: Claim) -> list[Played]:
    """A run with one round, as small as breaks the claim; empty if none up to a little above its number does."""
    number = _number(claim)
    for many in range(max(1, number - 2), min(MOST, number + 2)):
        for registered in (True, False):
            played = _run(compiled, many, registered=registered)
            watch = ClaimWatch(compiled.policy, [claim])
            for at, step in enumerate(played, 1):
                watch.see(step.event, step.decision)
                if watch.refuted:
                    return played[:at]
    return []


def _number(claim: Claim) -> int:
    says = claim.says
    if isinstance(says, AtMost | Within):
        return says.n
    if not isinstance(says, Always):
        return 0
    facts = (*says.claim.facts, *(says.implies.facts if says.implies else ()))
    mine = (f.amount for f in facts if isinstance(f, Compare) and f.resource in ("tool_calls", "unknown_tools"))
    return max((amount or 0 for amount in mine), default=0)


def _run(compiled: Compiled, many: int, *, registered: bool) -> list[Played]:
    model = compiled.policy.prices[0].model if compiled.policy.prices else ""
    events: list[e.AnyEvent] = [e.RunStarted(0, "run"), e.CallRequested(0, "1", CLIENT, model)]
    state = compiled.initial
    played: list[Played] = []
    for event in events:
        before = state
        state, decision = compiled.step(before, event)
        played.append(Played(event, decision, before, state, isinstance(event, e.RunStarted)))
        if isinstance(decision, d.Illegal | d.End):
            return played
    tools = Tools(compiled)
    try:
        name = tools.plain("1.0", state).name if registered else "unheard_of"
    except NoCase:
        return played
    calls = tuple(e.Proposed(f"1.{i}", name, f"1.{i}", registered=registered) for i in range(many))
    reply = e.ModelReplied(0, "1", 1, "tool_calls", calls=calls, usage=Usage(), ref="reply")
    after, decision = compiled.step(state, reply)
    return [*played, Played(reply, decision, state, after, False)]
