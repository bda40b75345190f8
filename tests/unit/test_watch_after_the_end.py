"""Whatever lets a run go on once it is over, or while it is stopping, is seen by the laws that watch a run."""

from __future__ import annotations

import pytest
from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Usage
from engine.core.policy import Limit, Policy
from engine.core.step import compile
from engine.verify.watch import Watch

POLICY = Policy(name="p", limits=(Limit(resource="llm_calls", max=5),))
ASKED = e.Proposed("1.0", "search", "{}")
REPLY = e.ModelReplied(0, "1", 1, "tool_calls", calls=(ASKED,), usage=Usage(), ref="r")
CALLS = (e.RunStarted(0, "run", profile=FULL), e.CallRequested(0, "1"), REPLY, e.ToolRequested(0, "1.0"))
STOPPING, ENDED = (*CALLS, e.Cancelled(0)), (*CALLS[:2], e.ModelReplied(0, "1", 1, text=True, usage=Usage(), ref="r"))

NEXT = e.CallRequested(0, "2")
WHY = "default: call"
CALL, AGAIN = d.Call(9, "2", 1, "", 99, because=WHY), d.Execute(9, 0, "1.0", 2, 99, because=WHY)
ADMITTED = {
    "a call": (NEXT, CALL),
    "an attempt": (e.RetryDue(0, "1"), d.Call(9, "1", 2, "", 99, because=WHY)),
    "a fallback": (e.ModelFailed(0, "1", 1, "timeout"), CALL),
    "a retry": (e.ModelFailed(0, "1", 1, "timeout"), d.Retry(9, "1", 2, "", 0, because=WHY)),
    "a tool": (e.ToolRequested(0, "9.0"), d.Execute(9, 0, "9.0", 1, 99, because=WHY)),
    "a started tool": (e.ToolRequested(0, "1.0"), AGAIN),
    "a tool again": (e.ToolEnded(0, "1.0", 1, "failed"), AGAIN),
    "a round": (REPLY, d.RunTools(9, 2, (AGAIN,), because=WHY)),
    "a question": (REPLY, d.RunTools(9, 2, (d.Ask(9, 0, "1.0", 99, because=WHY),), because=WHY)),
    "a suspension": (NEXT, d.Suspend(9, (d.Request("x", "tool"),), because=WHY)),
    "a function of the host": (NEXT, d.Resolve(9, "who", "llm_calls", 1, 2, 99, because=WHY)),
    "a child": (e.SpawnRequested(0, "run.1", "agent", ""), d.Spawn(9, "run.1", "agent", because=WHY)),
    "a child that waits": (e.SpawnRequested(0, "run.1", "agent", ""), d.Queue("run.1", because=WHY)),
}


def after(events: tuple[e.AnyEvent, ...], judge: Policy = POLICY) -> Watch:
    compiled, watch = compile(POLICY), Watch(judge)
    state = compiled.initial
    for event in events:
        state, decision = compiled.step(state, event)
        watch.see(event, decision)
    assert watch.broken == []
    return watch


@pytest.mark.parametrize("over", [STOPPING, ENDED], ids=["stopping", "ended"])
@pytest.mark.parametrize("name", ADMITTED)
def test_what_goes_on_after_the_end_is_found(name: str, over: tuple[e.AnyEvent, ...]) -> None:
    watch = after(over)
    watch.see(*ADMITTED[name])
    assert [words for words in watch.broken if words.startswith("L4: ") and "while the run is stopping" in words]


@pytest.mark.parametrize("over", [STOPPING, ENDED], ids=["stopping", "ended"])
def test_what_step_decides_then_breaks_nothing(over: tuple[e.AnyEvent, ...]) -> None:
    compiled, watch = compile(POLICY), Watch(POLICY)
    state = compiled.initial
    later = [event for event, _ in ADMITTED.values()]
    late = structs.replace(REPLY, usage=Usage(5, 5))
    for event in (*over, *later, late, e.Tick(9), e.ToolEnded(9, "1.0", 1, "cancelled"), *later):
        state, decision = compiled.step(state, event)
        watch.see(event, decision)
    assert watch.broken == []
