"""What a search may take for granted of the world: an honest machine breaks no law in any world, however narrow."""

from __future__ import annotations

import random

import pytest
from test_explore_grid import failing, together

from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import FailureRule, Fallback, Finalize, Limit, Policy, Retry
from engine.core.step import compile
from engine.verify.explore import explore
from engine.verify.prove import ALONE, FREE, PLAIN
from engine.verify.successors import IMPOSSIBLE, successors
from engine.verify.world import World, around

WORLDS = {
    "free": FREE,
    "clients": World(clients=True),
    "alone": ALONE,
    "plain": PLAIN,
    "without ancestors": World(ancestors=False, clients=True),
}

LADDERS = {
    "one": (FailureRule(reasons=("timeout",), then=(Fallback(clients=("a",)),)),),
    "chain": (FailureRule(reasons=("timeout",), then=(Retry(times=1), Fallback(clients=("a", "b")), Finalize())),),
    "two ladders": (
        FailureRule(reasons=("timeout",), then=(Fallback(clients=("a",)), Fallback(clients=("b",)))),
        FailureRule(reasons=("rate_limit",), then=(Fallback(clients=("a", "b")), Finalize())),
    ),
    "for a call": (
        FailureRule(reasons=("*",), then=(Fallback(clients=("a",), scope="call"), Fallback(clients=("b",)))),
    ),
}


def broken(policy: Policy, machine: Machine, world: World) -> list[str]:
    found = explore(around(machine, policy, world), laws_of(policy), max_states=60_000)
    return [b.text() for b in found.broken]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("ladders", LADDERS)
def test_a_fallback_breaks_no_law(ladders: str, world: str) -> None:
    limits = (Limit(resource="llm_calls", max=5, then=(Finalize(),)), Limit(resource="tokens", max=900, reserve=90))
    policy = Policy(name="p", limits=limits, failures=LADDERS[ladders])
    assert broken(policy, compile(policy).machine, WORLDS[world]) == []


@pytest.mark.parametrize("world", WORLDS)
def test_no_honest_machine_breaks_a_law(world: str) -> None:
    chosen = random.Random(11)
    for policy in (*together(3, 2, chosen), *failing(5, chosen)):
        assert broken(policy, compile(policy).machine, WORLDS[world]) == [], policy


def test_what_cannot_come_is_no_transition() -> None:
    policy = Policy(name="p", limits=(Limit(resource="llm_calls", max=3),), failures=LADDERS["one"])
    machine = around(compile(policy).machine, policy, ALONE)
    branches = successors(machine, laws_of(policy), 2).branches
    assert any(branch.rule.effect.kind == IMPOSSIBLE for branch in branches)
    found = explore(machine, laws_of(policy))
    assert found.fired["failed.gone.1.0"] == 0
    assert found.fired["failed.1.1.fallback"] > 0
