"""Comparisons of policies, held to what comparisons are: nothing differs from itself, more is never less, and what is
called equivalent is decided alike in any run that can be drawn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Limit, Policy
from engine.core.step import compile
from engine.core.vocabulary import RESOURCES
from engine.testing.drawn_policies import error_policies, policies
from engine.testing.drawn_questions import asking_policies
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.compare import Compared, compare
from engine.verify.outlooks import compared, of_decision
from engine.verify.product import joined
from engine.verify.product_many import differences
from engine.verify.verdicts import Budget

BUDGET = Budget(states=3_000, seconds=20.0)
DRAWN = st.one_of(policies(3), error_policies(3), asking_policies())


def known(old: Policy, new: Policy) -> Compared:
    found = compare(old, new, BUDGET, search_anyway=True)
    assume(not found.why.startswith("stopped"))
    return found


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(DRAWN)
def test_a_policy_is_equivalent_to_itself(policy: Policy) -> None:
    found = known(policy, policy)
    assert (found.result, found.shown, found.unplayed) == ("equivalent", (), ())


@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(DRAWN, st.randoms(use_true_random=False))
def test_order_and_names_never_count(policy: Policy, random: Any) -> None:
    def mixed(part: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(random.sample(part, len(part)))

    parts = ("limits", "failures", "tools", "breakers", "prices", "thresholds")
    update = {name: mixed(getattr(policy, name)) for name in parts}
    other = policy.model_copy(update={**update, "name": "of another name"})
    assert compare(policy, other, BUDGET).result == "equivalent"
    assert known(policy, other).result == "equivalent"


@st.composite
def changed(draw: st.DrawFn) -> tuple[Policy, Policy, int]:
    """A policy, the same with another maximum in one limit, and by how much more it is."""
    policy = draw(DRAWN)
    places = [i for i, limit in enumerate(policy.limits) if limit.max is not None]
    assume(places)
    place, more = draw(st.sampled_from(places)), draw(st.integers(1, 3))
    limit = policy.limits[place]
    larger = Limit(**{**dict(limit), "max": (limit.max or 0) + more})
    limits = (*policy.limits[:place], larger, *policy.limits[place + 1 :])
    return policy, Policy(**{**dict(policy), "limits": limits}), more


def larger(policy: Policy) -> Policy:
    """The same with limits so large that numbers stand for others."""
    limits = tuple(
        limit
        if limit.max is None or RESOURCES[limit.resource].kind != "counted"
        else limit.model_copy(update={"max": 4 * limit.max})
        for limit in policy.limits
    )
    return policy.model_copy(update={"limits": limits})


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.one_of(changed().map(lambda drawn: drawn[:2]), st.tuples(DRAWN, DRAWN)), st.booleans())
def test_what_numbers_that_stand_for_others_show_is_all_there_is(drawn: tuple[Policy, Policy], large: bool) -> None:
    pair = [larger(policy) if large else policy for policy in drawn]
    machines = [compile(policy).machine for policy in pair]
    exact = joined(pair, machines, plain=False, max_states=6_000, max_seconds=10.0, max_open=1)
    found = differences(pair, machines, max_states=20_000, max_seconds=10.0, max_open=1)
    assume(not found.cut)
    assert {(one.event, one.old, one.new) for one in exact.partings} <= set(found.kinds)


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.one_of(changed().map(lambda drawn: drawn[:2]), st.tuples(DRAWN, DRAWN)))
def test_verdicts_are_the_same_with_numbers_that_stand_for_others(drawn: tuple[Policy, Policy]) -> None:
    old, new = map(larger, drawn)
    exact = known(old, new)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engine.verify.compare._LARGE", 1)
        found = compare(old, new, BUDGET, search_anyway=True)
    assert found.result in ("unknown", exact.result) or exact.result == "unknown", (found, exact)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(changed())
def test_with_more_of_one_limit_no_policy_is_stricter(drawn: tuple[Policy, Policy, int]) -> None:
    old, new, _ = drawn
    assert known(old, new).result != "stricter"
    assert known(new, old).result != "looser"


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.one_of(changed().map(lambda drawn: drawn[:2]), st.tuples(policies(3), policies(3))))
def test_what_is_shown_happens_on_both_steps(drawn: tuple[Policy, Policy]) -> None:
    found = known(*drawn)
    for shown in found.shown:
        looks = []
        for policy in drawn:
            compiled = compile(policy)
            state, last = compiled.initial, ()
            seen = []
            for played in shown.run.first:
                state, decision = compiled.step(state, played.event)
                assert not isinstance(decision, d.Illegal)
                last = of_decision(decision)
                seen.append(last)
            looks.append(seen)
        *alike, (one, other) = zip(*looks, strict=True)
        assert all(a == b for a, b in alike)
        assert compared(one, other) == (shown.run.old, shown.run.new)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(changed().map(lambda drawn: drawn[:2]), st.tuples(policies(2), policies(2))),
    st.lists(st.one_of(worlds(), error_worlds()), min_size=6, max_size=12),
)
def test_no_run_that_can_be_drawn_refutes_a_verdict(drawn: tuple[Policy, Policy], tried: list[World]) -> None:
    never_refuted(drawn, tried)


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(changed().map(lambda drawn: drawn[:2]), st.tuples(policies(2), policies(2))),
    st.lists(st.one_of(worlds(), error_worlds()), min_size=12, max_size=20),
)
def test_nor_does_any_of_very_many(drawn: tuple[Policy, Policy], tried: list[World]) -> None:
    never_refuted(drawn, tried)


def never_refuted(drawn: tuple[Policy, Policy], tried: list[World]) -> None:
    """A drawn run that is decided otherwise is of a direction that the verdict names."""
    result = known(*drawn).result
    allowed = {
        "equivalent": set[str](),
        "stricter": {"stricter", "ends"},
        "looser": {"looser", "stricter", "other", "ends"},
        "incomparable": {"looser", "stricter", "other", "ends"},
        "unknown": {"looser", "stricter", "other", "ends"},
    }[result]
    for world in tried:
        way = parting(drawn, world)
        assert way is None or way in allowed, (result, way, world)


def parting(drawn: tuple[Policy, Policy], world: World) -> str | None:
    """How a run of the first policy is first decided otherwise by the second; of runs that were searched."""
    from engine.verify.compare import direction

    other = compile(drawn[1])
    state = other.initial
    for step in Host(compile(drawn[0]), world).run():
        if isinstance(step.event, e.ModelReplied) and len(step.event.calls) > BUDGET.open:
            return None
        if step.event.__class__ in (e.PoolsSeen, e.SpawnRequested):
            return None
        state, decision = other.step(state, step.event)
        if isinstance(decision, d.Illegal):
            return "illegal"
        looks = compared(of_decision(step.decision), of_decision(decision))
        if looks is not None:
            return direction(*looks)
    return None
