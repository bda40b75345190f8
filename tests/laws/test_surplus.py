"""What is not told apart makes no difference: the same laws, rules, ends and shortest runs, with fewer states."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_faults import FAULTS, Fault

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import Agents, Ask, Extend, Finalize, Limit, Policy
from engine.testing.drawn_policies import error_policies, policies
from engine.verify.explore import Exploration, explore
from engine.verify.prove import FREE
from engine.verify.surplus import surplus_of
from engine.verify.world import around

MOST = 6_000
MORE = 20 if os.environ.get("LAWS_PROFILE") == "slow" else 1


def limited(calls: int, rounds: int, *then: Extend | Ask | Finalize) -> Policy:
    limits = (
        Limit(resource="llm_calls", max=calls, then=(Finalize(),)),
        Limit(resource="tool_iterations", max=rounds, then=then),
    )
    return Policy(name="p", limits=limits)


def both(policy: Policy, machine: Machine) -> tuple[Exploration, Exploration]:
    laws = laws_of(policy)
    return explore(machine, laws, max_states=MOST), explore(machine, laws, max_states=MOST, apart=True)


def alike(few: Exploration, all_of_them: Exploration) -> None:
    assert [(b.law, b.words, len(b.trace)) for b in few.broken] == [
        (b.law, b.words, len(b.trace)) for b in all_of_them.broken
    ]
    assert {rule for rule, times in few.fired.items() if times} == {
        rule for rule, times in all_of_them.fired.items() if times
    }
    assert (few.held, few.vacuous) == (all_of_them.held, all_of_them.vacuous)
    assert few.states <= all_of_them.states


@pytest.mark.parametrize(("calls", "rounds"), list(itertools.product((1, 2, 3, 6), (0, 1, 2, 5, 9))))
@pytest.mark.parametrize("then", [(), (Finalize(),), (Extend(by=2), Finalize()), (Ask(up_to=1),)], ids=str)
def test_nothing_else_differs(calls: int, rounds: int, then: tuple[Extend | Ask | Finalize, ...]) -> None:
    policy = limited(calls, rounds, *then)
    alike(*both(policy, build(policy)))


@pytest.mark.slow
@settings(max_examples=12 * MORE, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.one_of(policies(2), error_policies(1)))
def test_nothing_else_differs_in_drawn_policies(policy: Policy) -> None:
    machine = around(build(policy), policy, FREE)
    assume(surplus_of(machine, laws_of(policy)))
    few, every = both(policy, machine)
    assume(not every.cut)
    alike(few, every)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_as_soon(fault: Fault) -> None:
    calls = [limit for limit in fault.policy.limits if limit.resource == "llm_calls"]
    rounds = [limit for limit in fault.policy.limits if limit.resource == "tool_iterations"]
    more = [Limit(resource="llm_calls", max=4)] * (not calls) + [Limit(resource="tool_iterations", max=9)] * (
        not rounds
    )
    policy = fault.policy.model_copy(update={"limits": (*fault.policy.limits, *more)})
    try:
        machine = fault.mutate(build(policy))
    except AssertionError:
        return  # the fault is one of a number that this policy has not
    few, every = both(policy, machine)
    assert {(b.law, b.words, len(b.trace)) for b in every.broken} == {
        (b.law, b.words, len(b.trace)) for b in few.broken
    }


def test_growth_is_linear_where_rounds_are_nearly_as_many_as_calls() -> None:
    found = [explore(build(p), laws_of(p)) for p in (limited(50, 49), limited(100, 99), limited(200, 199))]
    first, second, third = (one.states for one in found)
    assert third - second == 2 * (second - first)
    assert [one.broken for one in found] == [(), (), ()]


def test_where_calls_are_given_back_everything_is_told_apart() -> None:
    policy = limited(4, 4)
    assert surplus_of(build(policy), laws_of(policy))
    shared = policy.model_copy(update={"agents": Agents()})
    limits = tuple(limit.model_copy(update={"scope": "subtree"}) for limit in shared.limits)
    shared = shared.model_copy(update={"limits": limits})
    assert surplus_of(around(build(shared), shared, FREE), laws_of(shared)) == ()
    asked = policy.model_copy(update={"limits": (limited(4, 4).limits[1],)})
    assert surplus_of(build(asked), laws_of(asked)) == ()
