"""Corners where ladders, people and rounds meet: what each of them must not do to the others."""

from __future__ import annotations

from engine.core import decisions as d
from engine.core import events as e
from engine.core.host import FULL
from engine.core.machine.build import build
from engine.core.messages import Usage
from engine.core.policy import Consult, Extend, FailureRule, Finalization, Finalize, Limit, Policy, Step, ToolRule
from engine.core.state import State
from engine.core.step import Compiled, compile

USAGE = Usage(5, 1)


def run(policy: Policy, *events: e.AnyEvent, profile: tuple[str, ...] = FULL) -> tuple[Compiled, State, d.AnyDecision]:
    compiled = compile(policy)
    state, decision = compiled.step(compiled.initial, e.RunStarted(0, "r", profile=profile))
    for event in (e.CallRequested(0, "1"), *events):
        state, decision = compiled.step(state, event)
    return compiled, state, decision


def asks(*names: str, registered: bool = True) -> e.ModelReplied:
    calls = tuple(e.Proposed(f"1.{i}", name, registered=registered) for i, name in enumerate(names))
    return e.ModelReplied(0, "1", calls=calls, usage=USAGE)


def limit(resource: str, maximum: int, *then: Step, reserve: int = 0, scope: str | None = None) -> Limit:
    return Limit(resource=resource, max=maximum, then=then, reserve=reserve, scope=scope)  # type: ignore[arg-type]


def test_a_failure_may_have_several_finalizations() -> None:
    then = (Finalize(using="ending"), Finalize(text="Now."))
    machine = build(Policy(name="p", failures=(FailureRule(reasons=("*",), then=then),)))
    assert {"call.final.failure_1_1", "call.final.failure_1_2"} <= {rule.id for rule in machine.rules["call"]}


def test_a_consultant_is_asked_when_only_the_reserve_of_time_is_left() -> None:
    policy = Policy(name="p", limits=(limit("wall", 100, Consult(name="who"), Finalize(), reserve=10),))
    compiled = compile(policy)
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "r"))
    _, decision = compiled.step(state, e.CallRequested(95, "1"))
    assert isinstance(decision, d.Resolve)
    assert (decision.name, decision.resource) == ("who", "wall")


def test_an_extension_that_the_consultant_passes_is_not_granted() -> None:
    ladder = (Consult(name="who"), Extend(by=50), Finalize())
    policy = Policy(name="p", limits=(limit("tokens", 100, *ladder, reserve=20),))
    reply = e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "search"),), usage=Usage(80, 5))
    done = (reply, e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0"), e.CallRequested(0, "2"))
    compiled, state, decision = run(policy, *done, e.Resolved(0, "who", step="finalize"))
    assert isinstance(decision, d.Call)
    assert decision.final
    assert [hit.maximum for hit in compiled.standings(state, 0)] == [100]


def test_a_part_of_a_round_that_does_not_fit_leads_to_the_consultant() -> None:
    policy = Policy(name="p", limits=(limit("tool_calls", 1, Consult(name="who"), Finalize()),))
    done = (asks("a", "b"), e.ToolRequested(0, "1.0"), e.ToolEnded(0, "1.0"), e.CallRequested(0, "2"))
    _, _, decision = run(policy, *done)
    assert isinstance(decision, d.Resolve)


def test_a_call_while_a_person_is_asked_is_illegal_and_moves_nothing() -> None:
    policy = Policy(name="p", tools=(ToolRule(glob="a", ask=True),))
    compiled, state, _ = run(policy, asks("a", "b"), e.ToolRequested(0, "1.1"))
    after, decision = compiled.step(state, e.CallRequested(0, "2", answered=("1.0", "1.1")))
    assert isinstance(decision, d.Illegal)
    assert after is state


def test_a_verdict_is_told_again_though_its_limit_has_room_since() -> None:
    policy = Policy(name="p", tools=(ToolRule(glob="*", ask=True, limit=2),))
    events = (asks("a", "b", "c"), e.ApprovalGiven(0, "1.0", "refused"), e.ToolRequested(0, "1.2"))
    _, _, decision = run(policy, *events)
    assert isinstance(decision, d.Reply)
    assert decision.why == "tool_limit"


def test_the_limit_that_refuses_is_named_in_a_merged_reply() -> None:
    limits = (limit("tool_calls", 6), limit("tool_calls", 0, Finalize(), scope="thread"))
    events = (e.ToolRequested(0, "1.0", "a"), asks("a", "b"))
    profile = tuple(ability for ability in FULL if ability != "rounds")
    policy = Policy(name="p", limits=limits, finalization=Finalization(mode="reactive"))
    _, _, decision = run(policy, *events, profile=profile)
    assert isinstance(decision, d.RunTools)
    assert {verdict.because for verdict in decision.verdicts} == {"limit tool_calls per thread"}
