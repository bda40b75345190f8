"""Every reachable state of a grid of machines: no law is broken anywhere, and each has something to say somewhere."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine, Sort
from engine.core.policy import (
    Breaker,
    Consult,
    Detector,
    Extend,
    FailureRule,
    FailureStep,
    Fallback,
    Finalization,
    Finalize,
    Limit,
    Policy,
    Price,
    ResourceName,
    Retry,
    Step,
    Stop,
    ToolRule,
)
from engine.core.step import compile
from engine.core.vocabulary import RESOURCES
from engine.testing.drawn_policies import AMOUNTS, COUNTED, error_policies, policies
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.explore import Exploration, explore, reachable

MAXIMA = (0, 1, 2, 5)
LADDERS: tuple[tuple[Step, ...], ...] = (
    (Stop(),),
    (Finalize(),),
    (Finalize(using="ending"),),
    (Finalize(using="ending"), Finalize(text="Now.")),
    (Extend(by=2), Finalize()),
    (Extend(by=9), Stop()),
    (Extend(by=1), Finalize(using="ending")),
    (Finalize(using="ending"), Extend(by=1), Finalize()),
    (Consult(name="who"), Finalize()),
    (Consult(name="who"), Extend(by=1), Finalize(using="ending"), Finalize()),
    (Consult(name="who"), Stop(), Extend(by=1), Finalize()),
    (Consult(name="who"), Finalize(), Extend(by=1)),
)
MODES = (
    Finalization(),
    Finalization(mode="reactive"),
    Finalization(mode="reactive", using="refusal", empty_retries=1),
    Finalization(empty_retries=2, prefer=("tool_calls", "llm_attempts", "tokens")),
)
PRICES = (Price(model="small", input=1, output=1),)
MORE = 20 if os.environ.get("LAWS_PROFILE") == "slow" else 1


def ladders(resource: ResourceName) -> list[tuple[Step, ...]]:
    extendable = RESOURCES[resource].extendable
    return [ladder for ladder in LADDERS if extendable or not any(isinstance(s, Extend) for s in ladder)]


def limits(resource: ResourceName) -> list[Limit]:
    """Every maximum with every ladder. Of amounts the machine sees only what they leave: one maximum will do."""
    if resource in AMOUNTS:
        reserved = [Limit(resource=resource, max=100, reserve=10, then=ladder) for ladder in ladders(resource)]
        return [Limit(resource=resource, max=100), Limit(resource=resource, max=100, then=(Extend(by=9),)), *reserved]
    atomic = (False, True) if resource == "tool_calls" else (False,)
    every = itertools.product(MAXIMA, ladders(resource), atomic)
    return [Limit(resource=resource, max=maximum, then=then, atomic=a) for maximum, then, a in every]


def alone() -> Iterator[Policy]:
    """Each limit by itself, in one mode after the other."""
    every = [limit for resource in (*COUNTED, *AMOUNTS) for limit in limits(resource)]
    for number, limit in enumerate(every):
        yield Policy(
            name=f"{limit.id} {number}", limits=(limit,), finalization=MODES[number % len(MODES)], prices=PRICES
        )


def together(count: int, of: int, chosen: random.Random) -> Iterator[Policy]:
    """Some of all the ways to put ``of`` limits into one policy: always the same ones."""
    for number in range(count):
        resources = chosen.sample([*COUNTED, *AMOUNTS[::2]], of)
        picked = [chosen.choice(limits(resource)) for resource in resources]
        scoped = [limit.model_copy(update={"scope": "thread"}) if chosen.random() < 0.2 else limit for limit in picked]
        fixed = [
            limit if limit.scope in RESOURCES[limit.resource].scopes else picked[i] for i, limit in enumerate(scoped)
        ]
        yield Policy(
            name=f"{of} limits, {number}", limits=tuple(fixed), finalization=chosen.choice(MODES), prices=PRICES
        )


RETRY, FALLBACK = Retry(times=2), Fallback(clients=("b", "c"))
FAILURES: tuple[tuple[FailureStep, ...], ...] = (
    (Stop(),),
    (RETRY,),
    (FALLBACK,),
    (Finalize(),),
    (Finalize(using="ending"),),
    (RETRY, FALLBACK, Finalize(text="Now.")),
    (Retry(times=1), Fallback(clients=("b",), scope="call"), Retry(times=2), FALLBACK),
    (Consult(name="who"), Retry(times=1), FALLBACK, Finalize()),
    (Retry(times=1), Consult(name="who"), Fallback(clients=("b",), scope="time", ms=50), Finalize(using="ending")),
)
TRIPS = (Detector(kind="failures", n=2),)
BREAKERS: tuple[tuple[Breaker, ...], ...] = (
    (Breaker(glob="*", trips=TRIPS),),
    (Breaker(glob="*", trips=TRIPS, reset=5, probe=1, when_open="stop"),),
    (Breaker(glob="*", trips=TRIPS, when_open="finalize", text="Now."), Breaker(glob="a*", trips=TRIPS)),
    (
        Breaker(glob="*", trips=TRIPS, when_open="finalize", using="ending"),
        Breaker(glob="a*", trips=TRIPS, when_open="stop"),
    ),
)
ASKING = (ToolRule(glob="a*", ask=True),)


def failing(count: int, chosen: random.Random) -> Iterator[Policy]:
    """Failure ladders, breakers and tools that a person must allow, with some limits or none: always the same ones."""
    for number in range(count):
        resources = chosen.sample([*COUNTED, *AMOUNTS[::2]], number % 3)
        rules = [FailureRule(reasons=("*",), then=chosen.choice(FAILURES))]
        if chosen.random() < 0.3:
            rules.append(FailureRule(reasons=("rate_limit", "timeout"), then=chosen.choice(FAILURES)))
        yield Policy(
            name=f"failing {number}",
            limits=tuple(chosen.choice(limits(resource)) for resource in resources),
            finalization=chosen.choice(MODES),
            failures=tuple(rules) if number % 4 else (),
            breakers=chosen.choice(BREAKERS) if chosen.random() < 0.4 else (),
            tools=ASKING if chosen.random() < 0.4 else (),
            prices=PRICES,
        )


def policies_of_the_grid() -> list[Policy]:
    chosen = random.Random(1)
    some = [together(50 * MORE, 2, chosen), together(40 * MORE, 3, chosen), together(15 * MORE, 5, chosen)]
    some.append(failing(60 * MORE, chosen))
    return [*alone(), *itertools.chain.from_iterable(some)]


@pytest.fixture(scope="module")
def grid() -> list[tuple[Policy, Machine, Exploration]]:
    found = []
    for policy in policies_of_the_grid():
        machine = build(policy)
        found.append((policy, machine, explore(machine, laws_of(policy), max_states=200_000)))
    return found


def test_no_law_is_broken_in_any_state(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    broken = [f"{policy.model_dump_json()}\n{b.text()}" for policy, _, found in grid for b in found.broken]
    assert broken == []
    assert [policy.name for policy, _, found in grid if found.cut or found.sampled] == []


def generic(words: str, names: Iterable[str]) -> str:
    """Words about a limit without its name, and about a step of a ladder without its number."""
    for name in sorted(names, key=len, reverse=True):
        words = words.replace(name, "*")
    return re.sub(r"\.?\d+", "", words)


def test_no_check_is_vacuous_everywhere(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    said, silent = set(), set()
    for policy, _, found in grid:
        laws = laws_of(policy)
        names = [plan.limit.id for plan in laws.plans]
        for check in laws.checks:
            if not check.forbids and check.seen != "start":
                text = f"{check.law}: not ({check.broken})"
                (silent if text in found.vacuous else said).add((check.seen, generic(text, names)))
    assert silent - said == set()


def test_every_kind_of_rule_fires_somewhere(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    fired, known = set(), set()
    for policy, _, found in grid:
        names = [plan.name for plan in laws_of(policy).plans]
        for id, times in found.fired.items():
            kind = generic(id, names)
            known.add(kind)
            if times:
                fired.add(kind)
    # Answers to questions that nobody asked: the explorer makes none up.
    assert sorted(known - fired) == ["extension.other", "resolved.other"]


# -- what the explorer covers -------------------------------------------------------------------------


EXPLORED = 15_000
"""A drawn policy with more states is left out: to explore it takes longer than it shows."""


@settings(max_examples=20 * MORE, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.one_of(policies(largest=3), error_policies(largest=1)), st.one_of(worlds(), error_worlds()))
def test_every_state_of_a_real_run_was_explored(policy: Policy, world: World) -> None:
    compiled = compile(policy)
    meters = [v.sort is Sort.METER for v in compiled.machine.variables]
    try:
        explored = reachable(compiled.machine, laws_of(policy), max_states=EXPLORED, max_open=4)
    except ValueError:
        reject()
    for step in Host(compiled, world).run():
        values = tuple(v for v, meter in zip(step.after.vars, meters, strict=True) if not meter)
        assert values in explored
