"""Every reachable state of machines whose limits ask a person: no law is broken, each says something somewhere."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from test_explore_grid import MODES, MORE, PRICES, generic

from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine, Sort
from engine.core.policy import (
    Ask,
    Consult,
    Extend,
    FailureRule,
    Fallback,
    Finalize,
    Limit,
    Policy,
    ResourceName,
    Retry,
    Step,
    Stop,
    ToolRule,
)
from engine.core.step import compile
from engine.core.vocabulary import RESOURCES
from engine.testing.host import Host
from engine.testing.scripts import Tool, Turn, World
from engine.verify.explore import Exploration, explore, reachable

ASKABLE: tuple[ResourceName, ...] = ("tool_iterations", "tool_calls", "unknown_tools", "llm_attempts", "tokens", "cost")
LADDERS: tuple[tuple[Step, ...], ...] = tuple(
    ladder
    for times in (1, 2)
    for ladder in (
        (Ask(times=times),),
        (Ask(up_to=1, times=times), Finalize()),
        (Ask(up_to=3, times=times), Stop()),
        (Extend(by=1), Ask(times=times), Finalize(using="ending")),
        (Ask(up_to=1, times=times), Extend(by=1), Finalize()),
        (Finalize(using="ending"), Ask(up_to=1, times=times), Finalize()),
        (Consult(name="who"), Ask(up_to=2, times=times), Finalize()),
    )
)
OTHERS = (
    Limit(resource="llm_calls", max=3, then=(Finalize(),)),
    Limit(resource="llm_calls", max=2),
    Limit(resource="tool_calls", scope="run", max=1, then=(Finalize(),)),
    Limit(resource="wall", max=50, reserve=9, counting_approvals=True, then=(Finalize(),)),
)
FAILURES = (FailureRule(reasons=("*",), then=(Retry(times=1), Fallback(clients=("b",)), Finalize())),)


def limits(resource: ResourceName) -> list[Limit]:
    """Small maxima with every ladder; of amounts the machine sees only what they leave."""
    if RESOURCES[resource].kind == "amount":
        return [Limit(resource=resource, max=100, reserve=10, then=ladder) for ladder in LADDERS]
    atomic = (False, True) if resource == "tool_calls" else (False,)
    every = itertools.product((0, 1, 2), LADDERS, atomic)
    return [Limit(resource=resource, max=maximum, then=then, atomic=a) for maximum, then, a in every]


def policies() -> Iterator[Policy]:
    """Each limit by itself; then two that ask, none or some beside them: always the same ones."""
    chosen = random.Random(7)
    for number, limit in enumerate(limit for resource in ASKABLE for limit in limits(resource)):
        yield Policy(
            name=f"{limit.id} {number}", limits=(limit,), finalization=MODES[number % len(MODES)], prices=PRICES
        )
    for number in range(60 * MORE):
        asking = [chosen.choice(limits(resource)) for resource in chosen.sample(ASKABLE, number % 3)]
        others = [x for x in chosen.sample(OTHERS, 1) if x.id not in {limit.id for limit in asking}]
        yield Policy(
            name=f"together {number}",
            limits=(*asking, *others),
            finalization=chosen.choice(MODES),
            failures=FAILURES if chosen.random() < 0.3 else (),
            tools=(ToolRule(glob="a*", ask=True),) if chosen.random() < 0.3 else (),
            prices=PRICES,
        )


@pytest.fixture(scope="module")
def grid() -> list[tuple[Policy, Machine, Exploration]]:
    found = []
    for policy in policies():
        machine = build(policy)
        found.append((policy, machine, explore(machine, laws_of(policy), max_states=200_000)))
    return found


def test_no_law_is_broken_whatever_people_answer(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    broken = [f"{policy.model_dump_json()}\n{b.text()}" for policy, _, found in grid for b in found.broken]
    assert broken == []
    assert [policy.name for policy, _, found in grid if found.cut or found.sampled] == []


def test_every_law_about_people_says_something(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    said, silent = set(), set()
    for policy, _, found in grid:
        laws = laws_of(policy)
        names = [plan.limit.id for plan in laws.plans]
        for check in laws.checks:
            if check.law in ("L1", "F5") and not check.forbids and check.seen != "start":
                text = f"{check.law}: not ({check.broken})"
                (silent if text in found.vacuous else said).add((check.seen, generic(text, names)))
    assert silent - said == set()


def test_every_rule_about_people_fires_somewhere(grid: list[tuple[Policy, Machine, Exploration]]) -> None:
    fired, known = set(), set()
    for policy, _, found in grid:
        names = [plan.name for plan in laws_of(policy).plans]
        for id, times in found.fired.items():
            kind = generic(id, names)
            known.add(kind)
            if times:
                fired.add(kind)
    asking = {kind for kind in known if "question" in kind or "extension" in kind or "unasked" in kind}
    assert len(asking) > 10
    assert asking - fired == {"extension.other"}


@pytest.mark.parametrize("grants", [(1,), (-1,), (0, -1), (9,)])
def test_every_state_of_a_run_that_asks_was_explored(grants: tuple[int, ...]) -> None:
    round = Turn(tools=(Tool(), Tool("nobody", registered=False)), finish="tool_calls")
    world = World(turns=(round,) * 6, grants=grants)
    asking = (Ask(up_to=2, times=2), Finalize())
    for resource in ("tool_iterations", "tool_calls", "unknown_tools", "llm_attempts"):
        policy = Policy(name="p", limits=(Limit(resource=resource, max=1, then=asking),))
        compiled = compile(policy)
        meters = [v.sort is Sort.METER for v in compiled.machine.variables]
        explored = reachable(compiled.machine, laws_of(policy), max_open=2)
        for step in Host(compiled, world).run():
            values = tuple(v for v, meter in zip(step.after.vars, meters, strict=True) if not meter)
            assert values in explored
