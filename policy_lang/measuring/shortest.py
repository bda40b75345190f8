"""Played runs as tests that are as short as can be: the whole run, or its end with what was used before it given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from engine.core.core import PHASE
from engine.core.decisions import Resolve, Stop
from engine.core.events import AnyEvent, CallRequested, ModelFailed, Resolved, ToolEnded
from engine.core.machine.machine import Phase
from engine.core.machine.plan import plans_of
from engine.core.step import Compiled
from engine.core.vocabulary import RESOURCES
from engine.verify.replay import Played
from policy_lang.verifying.blocks import Untellable, block
from policy_lang.verifying.written import shortened

_CUTS = 4
"""Places from which on a run is tried, with what was used before them given."""

_SHORT = 5
"""Events of a run that nobody would want to shorten."""


def texts(title: str, agent: str, played: Sequence[Played], compiled: Compiled, why: list[str]) -> Iterator[str]:
    """Ways to write the run down; ``why`` is told what of it cannot be. Whether they pass is for others to see."""
    whole = carried_out(compiled, shortened(played))
    for run, used in _ways(whole, compiled):
        try:
            yield block(title, agent, run, compiled, used=used)
        except Untellable as problem:
            why.append(f"a test cannot say {problem}")


def shortest(found: Sequence[str]) -> str:
    """The one that is read fastest; empty if there is none."""
    return min(found, key=lambda text: (text.count("\n"), len(text)), default="")


def _ways(whole: Sequence[Played], compiled: Compiled) -> Iterator[tuple[Sequence[Played], Mapping[str, int]]]:
    yield whole, {}
    starts = [n for n, step in enumerate(whole) if _ready(step)] if len(whole) > _SHORT else []
    for n in starts[:0:-1][:_CUTS]:
        rest, used = whole[n:], _used(compiled, whole[n])
        yield [whole[0], *_at_once(rest)], used
        yield [whole[0], *rest], used


def _ready(step: Played) -> bool:
    return isinstance(step.event, CallRequested) and step.before.vars[PHASE] == Phase.READY


def _used(compiled: Compiled, step: Played) -> dict[str, int]:
    """What is used before an event, of what the policy counts."""
    used = compiled.used(step.before)
    names = [p.resource for p in plans_of(compiled.policy) if RESOURCES[p.resource].kind == "counted"]
    return {name: n for name in dict.fromkeys(names) if (n := getattr(used, name, 0))}


def _at_once(played: Sequence[Played]) -> list[Played]:
    """The same, begun when the run does: how long it took to come so far seldom matters."""
    gone = played[0].event.at
    return [step._replace(event=structs.replace(step.event, at=step.event.at - gone)) for step in played]


def carried_out(compiled: Compiled, played: Sequence[Played]) -> list[Played]:
    """The run, and what a driver sends by itself to carry out its last decision: an answer of the host's function, the
    ends of what is cancelled."""
    out = list(played)
    for event in _sent(out[-1]):
        before = out[-1].after
        after, decision = compiled.step(before, event)
        out.append(Played(event, decision, before, after, True))
    return out


def _sent(last: Played) -> Iterator[AnyEvent]:
    state, at = last.after, last.event.at
    match last.decision:
        case Resolve(name=name):
            yield Resolved(at, name, "ok", "text")
        case Stop(cancel=tools, cancel_call=call):
            if call and state.call is not None:
                yield ModelFailed(at, state.call.id, state.call.attempt, "aborted")
            yield from (ToolEnded(at, id, 1, "cancelled", id, ref="result") for id in tools)
        case _:
            return
