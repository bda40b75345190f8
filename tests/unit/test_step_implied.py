"""Hosts that show no whole rounds: tools are judged one by one, and a reply that comes later is merged with them."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Usage
from engine.core.policy import Breaker, Detector, Finalization, Finalize, Limit, Policy, ToolRule
from engine.core.state import State
from engine.core.step import Compiled, compile
from engine.verify.watch import Watch

NO_ROUNDS = tuple(ability for ability in FULL if ability != "rounds")
REPLY = e.ModelReplied(0, "1", calls=tuple(e.Proposed(f"1.{i}", "search") for i in range(3)), usage=Usage(5, 1))


def run(compiled: Compiled, *events: e.AnyEvent, state: State | None = None) -> tuple[State, list[d.AnyDecision]]:
    state, decisions = state or compiled.initial, []
    for event in events:
        state, decision = compiled.step(state, event)
        decisions.append(decision)
    return state, decisions


def begun(*limits: Limit, mode: str = "proactive", tools: tuple[ToolRule, ...] = ()) -> tuple[Compiled, State]:
    finalization = Finalization(mode=mode)  # type: ignore[arg-type]
    compiled = compile(Policy(name="p", limits=limits, finalization=finalization, tools=tools))
    state, _ = run(compiled, e.RunStarted(0, "r", profile=NO_ROUNDS), e.CallRequested(0, "1"))
    return compiled, state


def wanted(id: str, name: str = "search", registered: bool = True) -> e.ToolRequested:
    return e.ToolRequested(0, id, name, registered=registered)


def test_all_tools_of_a_reply_are_one_round() -> None:
    compiled, state = begun(Limit(resource="tool_iterations", max=1))
    events = (wanted("1.0"), e.ToolEnded(0, "1.0"), wanted("1.1"), wanted("1.2"), e.ToolEnded(0, "1.1"))
    state, decisions = run(compiled, *events, e.ToolEnded(0, "1.2"), state=state)
    assert [type(x).__name__ for x in decisions] == ["Execute", "Continue", "Execute", "Execute", "Wait", "Continue"]
    assert compiled.used(state).tool_iterations == 1
    assert compiled.used(state).tool_calls == 3
    state, decisions = run(compiled, e.CallRequested(0, "2"), wanted("2.0"), state=state)
    assert isinstance(decisions[1], d.End)
    assert decisions[1].outcome.reason == "tool_iterations"
    assert [reply.id for reply in decisions[1].close] == ["2.0"]


def test_a_later_reply_keeps_the_verdicts_given_and_judges_the_rest() -> None:
    compiled, state = begun(tools=(ToolRule(glob="search", limit=2),))
    state, decisions = run(compiled, wanted("1.1"), REPLY, state=state)
    merged = decisions[1]
    assert isinstance(merged, d.RunTools)
    assert [(v.id, v.i, isinstance(v, d.Execute)) for v in merged.verdicts] == [
        ("1.0", 0, True),
        ("1.1", 1, True),
        ("1.2", 2, False),
    ]
    used = compiled.used(state)
    assert (used.tool_iterations, used.tool_calls, used.tokens) == (1, 2, 6)
    assert not merged.complete
    state, decisions = run(compiled, wanted("1.0"), e.ToolEnded(0, "1.0"), e.ToolEnded(0, "1.1"), state=state)
    assert [type(x).__name__ for x in decisions] == ["Execute", "Wait", "Continue"]


def test_a_reply_about_what_has_ended_completes_the_round() -> None:
    compiled, state = begun()
    events = [x for i in range(3) for x in (wanted(f"1.{i}"), e.ToolEnded(0, f"1.{i}"))]
    state, decisions = run(compiled, *events, REPLY, REPLY, state=state)
    assert isinstance(decisions[-2], d.RunTools)
    assert decisions[-2].complete
    assert isinstance(decisions[-1], d.Wait)
    assert compiled.used(state).tokens == 6


def test_asked_again_a_refused_tool_gets_its_refusal_again() -> None:
    compiled, state = begun(tools=(ToolRule(glob="shell", deny=True),))
    _, decisions = run(compiled, wanted("1.0", "shell"), wanted("1.0", "shell"), wanted("1.1", "x", False), state=state)
    assert isinstance(decisions[0], d.Reply)
    assert decisions[0] == decisions[1]
    assert isinstance(decisions[2], d.Reply)
    assert (decisions[0].why, decisions[2].why) == ("denied", "unknown_tool")


@pytest.mark.parametrize("using", [None, "host"])
def test_a_round_that_does_not_fit_is_refused_tool_by_tool_and_the_next_call_is_final(using: str | None) -> None:
    finalization = Finalization(mode="reactive", using=using)
    limit = Limit(resource="tool_iterations", max=0, then=(Finalize(),))
    compiled = compile(Policy(name="p", limits=(limit,), finalization=finalization))
    start = (e.RunStarted(0, "r", profile=NO_ROUNDS), e.CallRequested(0, "1"))
    state, decisions = run(compiled, *start, wanted("1.0"), wanted("1.1"), REPLY, e.CallRequested(0, "2"))
    text = "This call was not executed: the limit of 0 tool rounds has been reached."
    assert [x.text for x in decisions[2:4] if isinstance(x, d.Reply)] == [text, text]
    merged, final = decisions[4:]
    assert isinstance(merged, d.RunTools)
    assert merged.complete
    assert [v.text for v in merged.verdicts if isinstance(v, d.Reply)] == [text] * 3
    assert isinstance(final, d.Call)
    assert final.final
    assert compiled.used(state).tool_iterations == 0


def test_hosts_that_show_rounds_cannot_invent_calls() -> None:
    compiled = compile(Policy(name="p"))
    _, decisions = run(compiled, e.RunStarted(0, "r"), e.CallRequested(0, "1"), wanted("1.0"))
    assert decisions[-1] == d.Illegal("tool call 1.0 is not one of the round in hand")


def test_after_the_deadline_nothing_joins() -> None:
    compiled, state = begun(Limit(resource="wall", max=10))
    late = e.ToolRequested(10, "1.1", "search")
    _, decisions = run(compiled, wanted("1.0"), late, state=state)
    stop = decisions[1]
    assert isinstance(stop, d.Stop)
    assert (stop.cancel, [reply.id for reply in stop.close]) == (("1.0",), ["1.1"])


TOKENS = Limit(resource="tokens", max=1_000)
UNMETERED = e.ModelReplied(1, "1", calls=REPLY.calls)
OUTPUT = e.ModelReplied(1, "1", calls=(*REPLY.calls[:1], e.Proposed("1.9", "answer", kind="output")), usage=Usage(5, 1))


@pytest.mark.parametrize("reference", [False, True], ids=["generated", "reference"])
@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [(UNMETERED, "failed", "usage_unknown"), (OUTPUT, "completed", "answer")],
    ids=["no usage", "answer"],
)
def test_a_reply_that_ends_the_run_stops_what_has_begun(
    reference: bool, reply: e.ModelReplied, status: str, reason: str
) -> None:
    policy = Policy(name="p", limits=(TOKENS,))
    compiled, watch = compile(policy, reference=reference), Watch(policy)
    events = (e.RunStarted(0, "r", profile=NO_ROUNDS), e.CallRequested(0, "1"), wanted("1.1"), wanted("1.0"), reply)
    state, seen = compiled.initial, []
    for event in (*events, e.ToolEnded(2, "1.1", status="cancelled"), e.ToolEnded(2, "1.0", status="cancelled")):
        state, decision = compiled.step(state, event)
        watch.see(event, decision)
        seen.append(decision)
    stop, _, end = seen[-3:]
    assert isinstance(stop, d.Stop)
    assert set(stop.cancel) == {"1.0", "1.1"}
    assert {reply.id for reply in stop.close} == {c.id for c in reply.calls if c.kind == "function"} - {"1.0", "1.1"}
    assert isinstance(end, d.End)
    assert (end.outcome.status, end.outcome.reason) == (status, reason)
    assert watch.broken == []


@pytest.mark.parametrize("reference", [False, True], ids=["generated", "reference"])
@pytest.mark.parametrize("reply", [UNMETERED, OUTPUT], ids=["no usage", "answer"])
def test_with_nothing_in_flight_it_ends_at_once(reference: bool, reply: e.ModelReplied) -> None:
    compiled = compile(Policy(name="p", limits=(TOKENS,)), reference=reference)
    events = (e.RunStarted(0, "r", profile=NO_ROUNDS), e.CallRequested(0, "1"), wanted("1.0"), e.ToolEnded(0, "1.0"))
    _, decisions = run(compiled, *events, reply)
    end = decisions[-1]
    assert isinstance(end, d.End)
    assert {reply.id for reply in end.close} == {c.id for c in reply.calls if c.kind == "function"} - {"1.0"}


def test_usage_that_was_reported_before_is_usage() -> None:
    compiled, state = begun(TOKENS)
    told = e.UsageReported(0, "1", 1, Usage(5, 1))
    _, decisions = run(compiled, wanted("1.0"), told, UNMETERED, state=state)
    assert isinstance(decisions[-1], d.RunTools)


def test_a_round_that_was_opened_by_its_tools_holds_nothing_but_calls() -> None:
    compiled, state = begun()
    state, _ = run(compiled, wanted("1.0"), state=state)
    assert [call.id for call in state.round] == ["1.0"]
    assert state.call is not None
    assert state.call.implied
    state, _ = run(compiled, REPLY, state=state)
    assert state.call is not None
    assert not state.call.implied


@pytest.mark.parametrize("when", ["before", "after"])
def test_breakers_are_told_each_outcome_once(when: str) -> None:
    """A round that has ended may go on with another tool, or be completed again by its reply."""
    trips = (Detector(kind="failures", n=2),)
    compiled = compile(Policy(name="p", breakers=(Breaker(glob="*", trips=trips),)))
    failed = e.ToolEnded(0, "1.0", status="failed")
    start = (e.RunStarted(0, "r", profile=NO_ROUNDS), e.CallRequested(0, "1"), wanted("1.0"), failed)
    shown = e.ModelReplied(0, "1", calls=REPLY.calls[:2])
    more = (wanted("1.1"), e.ToolEnded(0, "1.1", status="cancelled"))
    state, _ = run(compiled, *start, *((shown, *more) if when == "before" else (*more, shown)))
    (breaker,) = state.book.breakers
    assert (breaker.failures, breaker.opened) == (1, None)
