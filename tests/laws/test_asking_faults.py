"""The laws find faults of suspension: in the machine by exploration, in ``step`` by what a run shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from test_faults import Fault, change, policy, watched, with_update, without, without_update

from engine.core import decisions as d
from engine.core import events as e
from engine.core import extending
from engine.core.machine.build import build
from engine.core.machine.expr import TRUE, And, Field, Le, Lit, Or
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Grant, Machine, Rule, Set
from engine.core.policy import Ask, Finalize, Limit, Policy, ToolRule
from engine.core.state import ASKED, WAITING, with_extra
from engine.core.step import compile
from engine.testing.scripts import Tool, Turn, World
from engine.verify.explore import explore

ONCE = policy(Limit(resource="tool_iterations", max=1, then=(Ask(up_to=2), Finalize())))
PLAIN = policy(Limit(resource="tool_iterations", max=1, then=(Ask(up_to=2),)))
TWICE = policy(Limit(resource="tool_iterations", max=1, then=(Ask(up_to=2, times=2),)))
ATTEMPTS = policy(Limit(resource="llm_attempts", max=1, then=(Ask(up_to=1),)))
TOOLS = policy(Limit(resource="tool_calls", max=1, then=(Ask(up_to=1), Finalize())))


def uncapped(machine: Machine) -> Machine:
    """What is granted is what the person said, however much."""

    def how(rule: Rule) -> Rule:
        assert isinstance(rule.guard, And)
        said = tuple(p for p in rule.guard.parts if not isinstance(p, Or))
        return replace(rule, guard=And((*said, Le(Field("amount"), Lit(0)))))

    return change(machine, "extension.last_all.tool_iterations", how)


ALL = "extension.last_all.tool_iterations"
FAULTS = (
    Fault("an uncapped grant", ONCE, uncapped, "L1", "more tool_iterations is granted than", 12),
    Fault("a grant of too much", PLAIN, with_update(ALL, Grant("tool_iterations_left", 5)), "L1", "more is", 30),
    Fault(
        "a grant that spends no time of asking",
        TWICE,
        without_update("extension.all.tool_iterations", "tool_iterations_asks_left"),
        "F5",
        "too often",
        30,
    ),
    Fault(
        "a last grant that leaves the ladder where it is",
        PLAIN,
        without_update(ALL, "tool_iterations_step"),
        "F5",
        "too often, or out of turn",
        30,
    ),
    Fault("nobody is asked", ONCE, without("round.question.tool_iterations"), "F5", "its ladder asks a person", 12),
    Fault(
        "nobody is asked before an attempt", ATTEMPTS, without("attempt.question.llm_attempts"), "F5", "its ladder", 9
    ),
    Fault("nobody is asked about a call", TOOLS, without("tool.question.tool_calls"), "F5", "its ladder asks", 12),
    Fault(
        "asked although something is left",
        ONCE,
        lambda machine: change(machine, "round.question.tool_iterations", lambda rule: replace(rule, guard=TRUE)),
        "F5",
        "while something is left",
        9,
    ),
    Fault(
        "a refusal that grants",
        ONCE,
        with_update("extension.refused.tool_iterations", Grant("tool_iterations_left", 1)),
        "L1",
        "more is admitted",
        30,
    ),
    Fault(
        "the run goes on meanwhile",
        ONCE,
        with_update("round.question.tool_iterations", Set("phase", 1)),
        "F5",
        "a call",
        12,
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_exploration_finds_it(fault: Fault) -> None:
    machine, laws = build(fault.policy), laws_of(fault.policy)
    assert explore(machine, laws).broken == ()
    found = explore(fault.mutate(machine), laws, max_states=20_000).broken
    mine = [b for b in found if b.law == fault.law and fault.says in b.words]
    assert mine, [f"{b.law}: {b.words}" for b in found]
    assert len(mine[0].trace) <= fault.longest


# -- faults of step -----------------------------------------------------------------------------------

ROUND = Turn(tools=(Tool(),), finish="tool_calls", takes=5)
ASKING = Limit(resource="tool_iterations", max=1, then=(Ask(up_to=1, times=3), Finalize()))
BUSY = World(turns=(ROUND,) * 5, grants=(1,), thinks=1_000)


def test_a_wall_that_runs_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = policy(ASKING, Limit(resource="wall", max=100))
    assert watched(timed, BUSY) == ""
    counted = lambda core, s, at: structs.replace(s, book=with_extra(s.book, paused=at))  # noqa: E731
    monkeypatch.setattr("engine.core.suspension._caught_up", counted)
    assert "F2: wall ends the run while something is left" in watched(timed, BUSY)


def test_an_answer_that_nobody_hears_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = policy(ASKING, Limit(resource="wall", max=100))
    monkeypatch.setattr("engine.core.suspension._caught_up", lambda core, s, at: s)
    assert "F5: nobody has heard the answer about tool_iterations" in watched(timed, BUSY)


def test_a_wall_that_stands_still_although_it_counts_approvals_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = policy(ASKING, Limit(resource="wall", max=3_000, counting_approvals=True))
    assert watched(timed, BUSY) == ""
    lenient = Policy(name="p", limits=(ASKING, Limit(resource="wall", max=3_000)))
    assert "L8" in watched(lenient, BUSY, judge=timed)


def test_a_wrong_call_that_is_let_go_is_found() -> None:
    people = Policy(name="p", tools=(ToolRule(glob="*", ask=True),))
    step = compile(people).step

    answered: list[str] = []

    def other(state: Any, event: Any) -> Any:
        """The first answer is taken for one about the other call."""
        if isinstance(event, e.ApprovalGiven):
            answered.append(event.id)
            event = structs.replace(event, id="1.1") if len(answered) == 1 else event
        return step(state, event)

    world = World(turns=(Turn(tools=(Tool(), Tool("fetch")), finish="tool_calls"),))
    assert watched(people, world) == ""
    assert "L14: the answer about 1.0 lets 1.1 go" in watched(people, world, other)


def test_a_second_judging_that_counts_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(policy(ASKING), BUSY) == ""
    propose = extending.propose

    def twice(core: Any, s: Any, at: int, v: Any, calls: Any, ref: str) -> Any:
        spent, _ = core.amounts.charge(s.book.spent, structs.replace(s.call, charged=None), s.call.charged)
        return propose(core, structs.replace(s, book=structs.replace(s.book, spent=spent)), at, v, calls, ref)

    monkeypatch.setattr(extending, "propose", twice)
    assert "L10: the outcome says" in watched(policy(ASKING), BUSY)


def test_a_round_counted_before_it_is_judged_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(turns=(Turn(tools=(Tool(), Tool()), finish="tool_calls"),) * 3, grants=(1,))
    assert watched(TOOLS, world) == ""
    propose = extending.propose

    def counted(core: Any, s: Any, at: int, v: Any, calls: Any, ref: str) -> Any:
        more = list(v)
        more[core.rounds] += 1
        return propose(core, s, at, tuple(more), calls, ref)

    monkeypatch.setattr(extending, "propose", counted)
    assert "L10: the outcome says" in watched(TOOLS, world)


@pytest.mark.parametrize("kind", ["external", "function"])
def test_a_cancelled_suspension_that_leaves_a_call_open_is_found(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    people = Policy(name="p", tools=(ToolRule(glob="fetch", ask=True),))
    tools = (Tool("search", "external"),) if kind == "external" else (Tool("fetch"),)
    world = World(turns=(Turn(tools=tools, finish="tool_calls", patient=True, interrupt_people="cancel"),))
    assert watched(people, world) == ""
    left = (WAITING, ASKED) if kind == "external" else (WAITING,)
    monkeypatch.setattr("engine.core.ends._UNSTARTED", left)
    assert "L3: the tool call 1.0 has no result at the end" in watched(people, world)


def test_a_grant_that_is_larger_than_it_says_is_found() -> None:
    asked = policy(ASKING)
    step = compile(asked).step

    def boastful(state: Any, event: Any) -> Any:
        after, decision = step(state, event)
        if isinstance(event, e.ExtensionAnswered):
            notes = tuple(structs.replace(n, maximum=n.maximum + 1) for n in decision.notes)
            decision = structs.replace(decision, notes=notes)
        return after, decision

    assert "L1: tool_iterations is 3 by now, seen was 2" in watched(asked, BUSY, boastful)


def test_a_run_that_asks_for_too_much_is_found() -> None:
    asked = policy(ASKING)
    step = compile(asked).step

    def greedy(state: Any, event: Any) -> Any:
        after, decision = step(state, event)
        if isinstance(decision, d.Suspend):
            decision = structs.replace(decision, requests=(structs.replace(decision.requests[0], up_to=9),))
        return after, decision

    assert "L1: a person is asked for up to 9 more tool_iterations" in watched(asked, BUSY, greedy)
