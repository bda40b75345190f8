"""The search that stands for all limits: nothing that can happen is missing, faults are seen, and ends are proved."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_faults import ERROR_FAULTS, FAULTS, Fault

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Phase, Sort
from engine.core.policy import Ask, Extend, FailureRule, Fallback, Finalize, Limit, Policy, Retry, ToolRule
from engine.testing.drawn_policies import error_policies, policies
from engine.verify.explore import reachable
from engine.verify.saturated import Saturation, Search, outside_fragment, saturate
from engine.verify.small_numbers import MANY, with_small_numbers
from engine.verify.whole_rounds import any_size

STATES = 20_000
MANY_POLICIES = 900 if os.environ.get("LAWS_PROFILE") in ("thorough", "slow") else 30


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.one_of(policies(3), error_policies(3)))
def test_every_state_that_can_be_reached_is_among_those_that_stand_for_all_limits(policy: Policy) -> None:
    assume(contained(policy))


@pytest.mark.slow
@settings(max_examples=MANY_POLICIES, suppress_health_check=list(HealthCheck))
@given(st.one_of(policies(3), error_policies(3)))
def test_they_are_for_very_many_policies(policy: Policy) -> None:
    assume(contained(policy))


def contained(policy: Policy) -> bool:
    """False where it would take too long to see."""
    small = with_small_numbers(policy)
    machine, laws = any_size(build(small), small), laws_of(small)
    search = Search(small, machine, laws)
    if outside_fragment(machine, laws) or search.run(60_000, float("inf")):
        return False
    assert not search.faults
    assert not search.numbers.drifted
    try:
        exact = reachable(build(policy), laws_of(policy), max_states=STATES)
    except ValueError:
        return False
    fuel = [v.sort is Sort.FUEL for v in build(policy).variables if v.sort is not Sort.METER]

    def told(state: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(min(x, MANY) if is_fuel else x for x, is_fuel in zip(state, fuel, strict=False))

    known = {told(state) for state in search.seen}
    # Before a run starts, what earlier runs of its thread have used is not known.
    missing = [state for state in exact if state[0] != Phase.NEW and told(state) not in known]
    assert not missing
    return True


ATOMIC = [
    Policy(name="p", limits=(Limit(resource="tool_calls", max=3, atomic=True, then=ladder), *others), tools=tools)
    for ladder in ((), (Finalize(),), (Extend(by=2), Finalize()), (Ask(up_to=2), Finalize()), (Extend(by=9),))
    for others, tools in (
        ((), ()),
        ((Limit(resource="llm_calls", max=4, then=(Finalize(),)),), (ToolRule(glob="pay", ask=True),)),
        ((Limit(resource="tool_calls", max=5, scope="run"), Limit(resource="tool_iterations", max=2)), ()),
        ((Limit(resource="tool_calls", max=2, scope="run", atomic=True, then=(Extend(by=1),)),), ()),
    )
]


@pytest.mark.parametrize("policy", ATOMIC, ids=str)
def test_rounds_that_are_refused_as_a_whole_are_among_them(policy: Policy) -> None:
    assert contained(policy)
    assert saturate(policy, ends=False).proved


# -- faults ------------------------------------------------------------------------------------------


def of(fault: Fault) -> Saturation:
    return saturate(fault.policy, made=lambda policy: fault.mutate(build(policy)))


@pytest.mark.parametrize("fault", [*FAULTS, *ERROR_FAULTS], ids=lambda fault: fault.name)
def test_a_fault_is_suspected_and_nothing_is_without_it(fault: Fault) -> None:
    right, wrong = saturate(fault.policy), of(fault)
    assert right.proved
    assert not wrong.proved
    assert any(law == fault.law and fault.says in words for law, words in wrong.suspected) or "drift" in wrong.cut


# -- ends --------------------------------------------------------------------------------------------


def limit(resource: str, maximum: int, *then: object) -> Limit:
    return Limit.model_validate({"resource": resource, "max": maximum, "then": then})


def p(*limits: Limit, failures: tuple[FailureRule, ...] = ()) -> Policy:
    return Policy(name="p", limits=limits, failures=failures)


RETRIES = (FailureRule(reasons=("*",), then=(Retry(times=2), Fallback(clients=("b",)), Finalize())),)


@pytest.mark.parametrize(
    "policy",
    [
        p(limit("llm_calls", 60)),
        p(limit("llm_calls", 1, Finalize())),
        p(limit("llm_calls", 1000), failures=RETRIES),
        p(limit("llm_attempts", 9, Extend(by=4), Finalize())),
        p(limit("llm_attempts", 9, Ask(up_to=4, times=3), Finalize()), failures=RETRIES),
        p(limit("llm_calls", 5), limit("tool_iterations", 5, Extend(by=2))),
    ],
    ids=str,
)
def test_whatever_its_limits_a_run_ends(policy: Policy) -> None:
    assert saturate(policy).circle == ()


@pytest.mark.parametrize(
    ("policy", "round_and_round"),
    [
        (p(), {"handoff", "call.admit"}),
        (p(limit("tool_iterations", 5, Finalize())), {"handoff", "call.admit"}),
        (p(limit("tool_calls", 5)), {"handoff", "call.admit"}),
    ],
)
def test_a_run_that_nothing_bounds_goes_on_for_ever(policy: Policy, round_and_round: set[str]) -> None:
    circle = saturate(policy).circle
    assert circle is not None
    assert {rule.id for rule in circle} == round_and_round


def test_what_is_given_back_bounds_nothing() -> None:
    fault = next(f for f in FAULTS if f.name == "an extension taken again and again")
    calls = fault.policy.model_copy(update={"limits": (limit("llm_calls", 9), *fault.policy.limits)})
    assert saturate(calls, made=lambda policy: fault.mutate(build(policy))).circle == ()
    assert of(fault).circle


def test_a_search_that_is_cut_shows_nothing() -> None:
    found = saturate(p(limit("llm_calls", 9), limit("tool_iterations", 9)), max_states=20)
    assert found.cut == "stopped after 20 states"
    assert (found.proved, found.circle, found.never) == (False, None, ())
