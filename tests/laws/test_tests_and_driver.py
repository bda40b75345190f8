"""What a test in a policy file sends to ``step`` is what our driver sends: the same events, the same decisions.

The driver makes a run with a scripted model; the world's part of its journal is played as a test would play it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_driver_laws import World, person, policies

from engine.clients.base import ModelError
from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.policy import Policy
from engine.core.step import compile
from engine.run.driver import Driver
from engine.store import MemoryStore
from policy_lang.cases import Asked, Event
from policy_lang.resolve.tests import TOOL_ENDS
from policy_lang.source import Source, Span
from policy_lang.testing.play import Player

NOWHERE = Span(Source("", ""), 0, 0)
_WORDS = {status: word for word, status in TOOL_ENDS.items()}

_calls = st.lists(
    st.tuples(st.sampled_from(["ok", "fails", "denied", "nope"]), st.sampled_from(["{}", '{"x": 1}'])),
    min_size=1,
    max_size=3,
)


async def ok(x: int = 0) -> str:
    return "fine"


async def fails(x: int = 0) -> None:
    raise ValueError("no")


async def denied(x: int = 0) -> None:
    raise AssertionError("a denied tool has started")


def driver(policy: Policy, world: World, journal: MemoryStore) -> Driver:
    clients, resolvers = {"main": world, "cheap": world}, {"good": lambda context: "Wrap up."}
    return Driver(policy, clients, [ok, fails, denied], resolvers=resolvers, approver=person, journal=journal)


@st.composite
def _replies(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["calls", "calls", "calls", "calls", "text", "empty", "fails"]))
    if kind == "fails":
        return ModelError(draw(st.sampled_from(["rate_limit", "network", "auth", "host"])), "no")
    usage = draw(st.sampled_from([Usage(3, 2), Usage(30, 20)]))
    if kind == "calls":
        made = tuple(ToolCall(f"c{i}", name, args) for i, (name, args) in enumerate(draw(_calls)))
        return Reply(Message("assistant", "", made), "tool_calls", usage)
    return Reply(Message("assistant", "done" if kind == "text" else ""), "stop", usage)


def _played(event: e.AnyEvent, tools: dict[str, str]) -> Event | None:
    """An event of the world as a test has it; ``None`` for what a driver sends by itself."""
    made = Event("", NOWHERE)
    match event:
        case e.CallRequested():
            return made._replace(kind="call")
        case e.ModelReplied(calls=calls, usage=usage, text=text):
            tools |= {call.id: call.name for call in calls}
            tokens = usage.input + usage.output if usage else None
            asked = tuple(Asked(c.name, c.args, not c.registered, NOWHERE) for c in calls)
            kind = "asks" if calls else "answers"
            return made._replace(kind=kind, asked=asked, tokens=tokens, text="done" if text else "")
        case e.ModelFailed(reason=reason):
            return made._replace(kind="fails", word=reason)
        case e.ToolEnded(id=id, status=status, result=result):
            return made._replace(kind="tool", name=tools[id], word=_WORDS[status], result=result)
        case e.ApprovalGiven(answer=answer):
            return made._replace(kind="approved" if answer == "granted" else "refused")
    return None


def _gist(event: e.AnyEvent, decision: d.AnyDecision) -> tuple[object, ...]:
    """What happened and what was decided, without times, contents and amounts."""
    about = getattr(event, "id", "") or getattr(event, "call", "")
    gist: tuple[object, ...] = (type(event).__name__, about, type(decision).__name__)
    match decision:
        case d.Call(call=call, attempt=attempt, client=client, final=final, why=why):
            return (*gist, call, attempt, client, final, why)
        case d.RunTools(verdicts=verdicts):
            return (*gist, *((type(v).__name__, v.id, getattr(v, "why", "")) for v in verdicts))
        case d.End(outcome=outcome):
            return (*gist, outcome.status, outcome.reason, outcome.error, outcome.limit)
    return gist


@given(policies(), st.lists(_replies(), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_test_sends_what_the_driver_sends(policy: Policy, script: list[Any]) -> None:
    # A driver guesses how large a request is; that of a test has no size.
    policy = policy.model_copy(update={"limits": tuple(x for x in policy.limits if x.resource != "tokens")})
    assume(set(policy.resolvers()) <= {"good"} and not policy.consultants())  # a test's functions all answer
    store = MemoryStore()
    script = [*script, Reply(Message("assistant", "end"), "stop", Usage(0, 1))]
    asyncio.run(driver(policy, World(script), store).run("hello", run_id="run"))
    steps = [step for step in store.load("run").steps if not isinstance(step.event, e.PoolsSeen)]

    player, tools = Player(compile(policy), ()), dict[str, str]()
    for step in steps:
        event = _played(step.event, tools)
        if event is not None:
            player.play(event)
    ours = [_gist(record.event, record.decision) for record in player.records]
    assert ours == [_gist(step.event, step.decision) for step in steps]
