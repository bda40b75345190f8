"""What an exploration reports: numbers, what was cut or sampled, silent checks, and broken laws in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Phase, Set
from engine.core.policy import Extend, Finalize, Limit, Origin, Policy
from engine.verify.explore import Exploration, explore, reachable
from engine.verify.traces import condense


def policy(calls: int, rounds: int) -> Policy:
    where = Origin(file="agent.policy", line=3)
    return Policy(
        name="p",
        limits=(
            Limit(resource="llm_calls", max=calls, then=(Finalize(),), origin=where),
            Limit(resource="tool_iterations", max=rounds, then=(Extend(by=3), Finalize())),
        ),
    )


def explored(subject: Policy, **budget: float) -> Exploration:
    return explore(build(subject), laws_of(subject), **budget)  # type: ignore[arg-type]


def test_everything_reachable_is_visited_and_counted() -> None:
    small, large = explored(policy(6, 5)), explored(policy(60, 50))
    assert small.holds
    assert large.holds
    assert small.states < large.states
    assert small.depth < large.depth
    assert small.transitions == sum(small.fired.values())
    # The call limit's finalization always comes first here, so the other one is dead; it lives once it has room.
    assert small.fired["call.final.tool_iterations.2"] == 0
    assert explored(policy(9, 3)).fired["call.final.tool_iterations.2"] > 0


def test_a_budget_is_kept_and_said() -> None:
    few = explored(policy(60, 50), max_states=100)
    assert few.cut == "stopped after 100 states"
    assert not few.holds
    assert explored(policy(60, 50), max_seconds=0).cut == "stopped because its time was over"
    with pytest.raises(ValueError, match="stopped after 100 states"):
        reachable(build(policy(60, 50)), laws_of(policy(60, 50)), max_states=100)


def test_a_field_of_many_values_is_sampled_and_said() -> None:
    limit = Limit(resource="llm_calls", scope="thread", max=10**9)
    found = explored(Policy(name="p", limits=(limit,)), max_states=1_000)
    assert found.sampled == ("llm_calls_per_thread_left_spent",)


def test_checks_that_never_had_anything_to_say_are_named() -> None:
    vacuous = explored(policy(6, 5)).vacuous
    assert "F1: not (the final call is made for tool_iterations, which is not due)" in vacuous
    assert not [text for text in explored(policy(9, 3)).vacuous if "tool_iterations, which is not due" in text]


def test_a_broken_law_is_told_by_a_shortest_run_with_the_lines_of_the_policy() -> None:
    subject = policy(2, 5)
    machine = build(subject)
    kept = tuple(rule for rule in machine.rules["round"] if rule.id != "round.disobeyed")
    broken = explore(replace(machine, rules={**machine.rules, "round": kept}), laws_of(subject)).broken
    assert broken[0].text() == (
        "L2 is broken after 5 events: a round is admitted after the final call\n"
        "  the run begins -> go on  [default: start]\n"
        "  a call is requested -> admitted  [default: call]\n"
        "  the model hands over to another agent -> another agent goes on  [default: handoff]\n"
        "  a call is requested -> admitted as the final call (finalize)  [agent.policy:3]\n"
        "  the model asks for tools -> the round is admitted  [default: round]"
    )
    assert broken[0].trace[-1].event == "round"


def test_a_run_that_breaks_a_law_is_not_followed_further() -> None:
    machine = build(policy(2, 2))
    endless = replace(
        machine,
        rules={
            **machine.rules,
            "answered": tuple(
                rule if rule.effect.kind == "stop" else replace(rule, updates=(Set("phase", Phase.READY),))
                for rule in machine.rules["answered"]
            ),
        },
    )
    found = explore(endless, laws_of(policy(2, 2)))
    assert not found.cut
    assert {b.law for b in found.broken} == {"L4"}


def test_blocks_that_repeat_are_written_once() -> None:
    assert condense(["a", "b", "c", "b", "c", "b", "c", "d"]) == ["  a", "  3 x b", "      c", "  d"]
    assert condense(["x"] * 3) == ["  3 x x"]
    assert condense([]) == []
