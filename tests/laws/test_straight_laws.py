"""The straight code of the generated ``step`` decides as the interpreter does, on runs that hardly leave it.

Drawn policies in drawn worlds meet all there is, and so their runs leave the straight code early. Here limits stay
where they are, ladders begin with a retry, and hosts nearly always do what comes next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from engine.core import events as e
from engine.core import hot_path
from engine.core.core import PHASE
from engine.core.ladders import Fallback, Finalize, Retry, Stop
from engine.core.machine.machine import Phase
from engine.core.messages import Usage
from engine.core.policy import FailureRule, Limit, Policy, Price, ToolRule
from engine.core.state import ClientInfo, State
from engine.core.step import compile
from engine.core.vocabulary import RESOURCES
from engine.testing.drawn_policies import breakers

_LIMITS = (
    Limit(resource="llm_calls", max=6, then=(Finalize(),)),
    Limit(resource="llm_attempts", max=9),
    Limit(resource="llm_attempts", scope="thread", max=7, then=(Finalize(),)),
    Limit(resource="tool_iterations", max=5, then=(Finalize(text="{used} rounds."),)),
    Limit(resource="tool_calls", max=7),
    Limit(resource="unknown_tools", max=1),
    Limit(resource="tokens", max=400, reserve=40, then=(Finalize(),)),
    Limit(resource="cost", max=900),
    Limit(resource="wall", max=900, reserve=50, then=(Finalize(),)),
)
_RETRIES = (Retry(times=2, least=10, most=200), Retry(times=3, least=0, most=0), Retry(times=1, least=50, most=300))
_BEHIND = (Stop(), Finalize(), Fallback(clients=("spare",)), _RETRIES[2])
_REASONS = ("rate_limit", "timeout", "auth", "network", "host", "aborted", "?")
_TOOLS = ("search", "fetch", "shell")


@st.composite
def steady(draw: st.DrawFn) -> Policy:
    """A policy whose ``step`` has straight code: no ladder of it moves a limit."""
    rules = (ToolRule(glob="s*", timeout=90), ToolRule(glob="fetch", retry=Retry(times=1, least=1, most=4)))
    ladders = st.tuples(st.sampled_from(_RETRIES), st.sampled_from(_BEHIND)).filter(lambda two: two[0] is not two[1])
    chosen = draw(st.lists(st.sampled_from((("rate_limit",), ("unknown",), ("*",))), unique=True, max_size=3))
    return Policy(
        name="steady",
        limits=tuple(draw(st.lists(st.sampled_from(_LIMITS), unique_by=lambda limit: limit.id, max_size=5))),
        failures=tuple(FailureRule(reasons=reasons, then=draw(ladders)) for reasons in chosen),
        breakers=tuple(draw(st.lists(breakers(in_order=draw(st.booleans())), max_size=2))),
        tools=tuple(draw(st.lists(st.sampled_from(rules), unique_by=id, max_size=2))),
        prices=(Price(model="m", input=1_000_000, output=2_000_000),),
    )


class Move(NamedTuple):
    """What a host does next: ``odd`` picks what is out of the ordinary, mostly nothing."""

    ms: int
    odd: int
    fails: bool
    reason: str
    tool: str
    args: str
    tokens: int


def moves() -> st.SearchStrategy[Move]:
    return st.builds(
        Move,
        ms=st.sampled_from([0, 1, 9, 30, 120]),
        odd=st.integers(0, 30),
        fails=st.booleans(),
        reason=st.sampled_from(_REASONS),
        tool=st.sampled_from(_TOOLS),
        args=st.sampled_from(["a" * 64, "b" * 64]),
        tokens=st.sampled_from([0, 1, 15, 60]),
    )


def following(state: State, move: Move, number: int) -> e.AnyEvent:
    """The event that a host sends in this state."""
    at, call, phase = state.at + move.ms, state.call, state.vars[PHASE]
    if move.odd == 0:
        return e.Tick(at)
    if phase == Phase.CALLING and call is not None:
        used = Usage(move.tokens, move.tokens) if move.odd != 1 else None
        attempt = call.attempt + (move.odd == 2)
        if move.fails:
            shown: Any = "delivered" if move.odd == 3 else "none"
            after = 40 if move.odd % 3 == 0 else None
            told = used if move.odd % 2 else None
            return e.ModelFailed(at, call.id, attempt, move.reason, after, move.odd * 33, shown, told)
        names = (move.tool,) if move.odd > 6 else (move.tool, "search")
        calls = tuple(e.Proposed(f"{call.id}.{i}", name, move.args) for i, name in enumerate(names))
        return e.ModelReplied(at, call.id, attempt, "tool_calls", calls=calls, usage=used)
    if phase == Phase.WAITING and call is not None:
        return e.RetryDue(max(at, call.not_before) if move.odd > 3 else at, call.id)
    if phase == Phase.TOOLS and state.round:
        tool = next((one for one in state.round if not one.status), state.round[-1])
        if tool.status == 0:
            return e.ToolRequested(at, tool.id, tool.tool)
        status: Any = ("failed", "timed_out")[move.odd % 2] if move.fails else "ok"
        return e.ToolEnded(at, tool.id, tool.attempt, status, "r" * 64 if move.odd > 15 else "")
    return e.CallRequested(at, str(number), "main", "m", move.tokens, 30 if move.odd > 20 else None)


@given(steady(), st.lists(moves(), min_size=5, max_size=60))
def test_straight_code_decides_as_the_interpreter_does(policy: Policy, drawn: list[Move]) -> None:
    generated, reference = compile(policy), compile(policy, reference=True)
    assert hot_path.source(generated.core)
    started = e.RunStarted(0, "run", clients=(ClientInfo("spare", "m"),))
    state, _ = reference.step(reference.initial, started)
    for number, move in enumerate(drawn, 1):
        event = following(state, move, number)
        expected = reference.step(state, event)
        assert generated.step(state, event) == expected
        state = expected[0]


def test_the_limits_are_all_there_are() -> None:
    assert {limit.resource for limit in _LIMITS} >= {n for n, r in RESOURCES.items() if r.kind == "counted"}
