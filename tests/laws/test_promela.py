"""The machine as Promela: whole, and Spin's verdicts and numbers are those of the exact search."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_asking_faults import ONCE
from test_faults import BOTH, FAULTS, breaking, failing, limit, policy

from benchmarks.spin import installed, spun
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.policy import Finalize, Policy
from engine.verify.explore import explore
from engine.verify.promela import promela
from engine.verify.successors import names_of, successors

needs_spin = pytest.mark.skipif(not installed(), reason="no spin or gcc: `apt-get install spin gcc`")

MACHINES = {"limits": BOTH, "failures": failing(limit("llm_calls", 3)), "breaker": breaking("stop"), "people": ONCE}
SEEDED = (
    "a round is not counted",
    "a second recovery",
    "the end is not the end",
    "a fallback without a client",
    "an open breaker is ignored",
)
OTHER = {"L1": "L2", "L2": "L4", "L4": "L1", "F3": "L4", "L6": "L4"}
"""A law beside the one that is broken, about which both must agree too."""


@pytest.mark.parametrize("name", MACHINES)
def test_every_variable_and_every_way_in_which_a_rule_can_fire_is_there(name: str) -> None:
    machine, laws = build(MACHINES[name]), laws_of(MACHINES[name])
    text = promela(machine, laws)
    declared = [line.split()[1] for line in text.splitlines() if line.startswith(("byte ", "short ", "int "))]
    assert declared == [f"v_{variable}" for variable in names_of(machine, laws)]
    written = {branch.rule.id for branch in successors(machine, laws, 2).branches}
    assert {id for id in written if f"/* {id} */" in text} == written
    assert text.count("d_step {") == text.count("\n  }")
    assert "assert(" in text


def test_without_laws_nothing_is_asserted() -> None:
    laws = laws_of(BOTH)
    assert "assert(" not in promela(build(BOTH), replace(laws, checks=()))


def test_large_numbers_have_room() -> None:
    large = policy(limit("llm_calls", 40_000))
    assert "int v_llm_calls_left = 40000;" in promela(build(large), laws_of(large))
    assert "short v_llm_calls_left = 3;" in promela(build(BOTH), laws_of(BOTH))


def test_rounds_that_are_judged_as_a_whole_are_not_written() -> None:
    atomic = policy(limit("tool_calls", 2, Finalize(), atomic=True))
    with pytest.raises(ValueError, match="`atomic` limit"):
        promela(build(atomic), laws_of(atomic))


@needs_spin
@pytest.mark.parametrize("name", MACHINES)
def test_spin_counts_the_same_states_and_finds_nothing_wrong(name: str) -> None:
    subject: Policy = MACHINES[name]
    machine, laws = build(subject), laws_of(subject)
    found = explore(machine, laws, apart=True)
    assert found.holds
    assert spun(promela(machine, laws)) == (found.states, 0)


@needs_spin
@pytest.mark.parametrize("name", SEEDED)
def test_spin_finds_the_law_broken_that_the_search_finds_broken(name: str) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    machine, laws = fault.mutate(build(fault.policy)), laws_of(fault.policy)
    assert spun(promela(machine, laws))[1] == 1
    for law in (fault.law, OTHER[fault.law]):
        of_it = replace(laws, checks=tuple(check for check in laws.checks if check.law == law))
        broken = bool(explore(machine, of_it).broken)
        assert spun(promela(machine, of_it))[1] == broken, law
        assert broken or law != fault.law
