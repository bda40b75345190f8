"""Calls for which no time is left: answered instead of run, and not counted, wherever that is found out."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.host import FULL
from engine.core.policy import Breaker, Detector, Finalize, Limit, Policy, ToolRule
from engine.core.state import State
from engine.core.step import Compiled, compile
from engine.core.vocabulary import REFUSALS

WALL = Limit(resource="wall", max=1_000, reserve=100, then=(Finalize(),))
FIVE = Limit(resource="tool_calls", max=5)
ASKED = e.CallRequested(0, "1")


def reply(at: int, count: int = 2) -> e.ModelReplied:
    return e.ModelReplied(at, "1", calls=tuple(e.Proposed(f"1.{i}", "search") for i in range(count)))


@pytest.fixture(params=[False, True], ids=["generated", "reference"])
def reference(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def play(compiled: Compiled, *events: e.AnyEvent, profile: tuple[str, ...] = FULL) -> tuple[State, d.AnyDecision]:
    state, decision = compiled.step(compiled.initial, e.RunStarted(0, "r", profile=profile))
    for event in events:
        state, decision = compiled.step(state, event)
        assert not isinstance(decision, d.Illegal), decision.problem
    return state, decision


@pytest.mark.parametrize("rule", [ToolRule(glob="search", limit=5), ToolRule(glob="search", ask=True)])
@pytest.mark.parametrize(("at", "counted"), [(899, True), (900, False), (999, False)])
def test_a_round_in_the_reserve_is_answered_and_its_calls_are_not_counted(
    reference: bool, rule: ToolRule, at: int, counted: bool
) -> None:
    compiled = compile(Policy(name="p", limits=(WALL, FIVE), tools=(rule,)), reference=reference)
    state, decision = play(compiled, ASKED, reply(at))
    assert isinstance(decision, d.RunTools)
    assert decision.complete is not counted
    if not counted:
        assert [(v.why, v.text) for v in decision.verdicts if isinstance(v, d.Reply)] == [
            ("no_time", REFUSALS["no_time"])
        ] * 2
        assert compiled.used(state).tool_calls == 0
        assert [hit.used for hit in compiled.standings(state, at) if hit.resource == "tool_calls"] == [0]
        _, final = compiled.step(state, e.CallRequested(at, "2"))
        assert isinstance(final, d.Call)
        assert (final.final, final.why) == (True, "wall")


def test_what_never_started_is_given_back(reference: bool) -> None:
    """The second call waits behind the first, until its time is over."""
    policy = Policy(name="p", limits=(WALL, FIVE), tools=(ToolRule(glob="search", limit=5),))
    compiled = compile(policy, reference=reference)
    state, _ = play(compiled, ASKED, reply(0), e.ToolRequested(0, "1.0"), e.ToolEnded(900, "1.0"))
    assert compiled.used(state).tool_calls == 2
    state, decision = compiled.step(state, e.ToolRequested(900, "1.1"))
    assert isinstance(decision, d.Reply)
    assert decision.why == "no_time"
    assert compiled.used(state).tool_calls == 1
    assert [hit.used for hit in compiled.standings(state, 900) if hit.resource == "tool_calls"] == [1]
    assert state.book.tool_counts == (1,)
    again, told = compiled.step(state, e.ToolRequested(900, "1.1"))
    assert isinstance(told, d.Reply | d.Illegal)
    assert compiled.used(again).tool_calls == 1


def test_what_has_started_has_been_used(reference: bool) -> None:
    compiled = compile(Policy(name="p", limits=(WALL, FIVE)), reference=reference)
    state, _ = play(compiled, ASKED, reply(0), e.ToolRequested(0, "1.0"))
    state, decision = compiled.step(state, e.ToolRequested(900, "1.0"))
    assert isinstance(decision, d.Reply)
    assert decision.why == "timed_out"
    assert compiled.used(state).tool_calls == 2


def test_a_call_that_a_breaker_stops_before_its_start_is_given_back(reference: bool) -> None:
    trips = (Detector(kind="failures", n=1),)
    breaker = Breaker(glob="*", trips=trips, apply="now")
    compiled = compile(Policy(name="p", limits=(FIVE,), breakers=(breaker,)), reference=reference)
    failed = e.ToolEnded(1, "1.0", status="failed")
    state, decision = play(compiled, ASKED, reply(0), e.ToolRequested(0, "1.0"), failed, e.ToolRequested(2, "1.1"))
    assert isinstance(decision, d.Reply)
    assert decision.why == "breaker"
    assert compiled.used(state).tool_calls == 1


def test_the_probe_of_a_call_without_time_is_free_again(reference: bool) -> None:
    breaker = Breaker(glob="*", trips=(Detector(kind="failures", n=1),), reset=10, probe=1)
    compiled = compile(Policy(name="p", limits=(WALL,), breakers=(breaker,)), reference=reference)
    state, _ = play(compiled, ASKED, reply(0, 1), e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0", status="failed"))
    state, _ = compiled.step(state, e.CallRequested(20, "2"))
    state, _ = compiled.step(state, e.ModelReplied(20, "2", calls=(e.Proposed("2.0", "search"),)))
    assert state.book.breakers[0].probing
    state, decision = compiled.step(state, e.ToolRequested(950, "2.0"))
    assert isinstance(decision, d.Reply)
    assert not state.book.breakers[0].probing


def test_a_tool_that_joins_too_late_is_not_counted(reference: bool) -> None:
    compiled = compile(Policy(name="p", limits=(WALL, FIVE)), reference=reference)
    profile = tuple(ability for ability in FULL if ability != "rounds")
    state, decision = play(compiled, ASKED, e.ToolRequested(900, "1.0", "search"), profile=profile)
    assert isinstance(decision, d.Reply)
    assert decision.why == "no_time"
    assert compiled.used(state).tool_calls == 0
