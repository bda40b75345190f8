"""Verdicts of a prover that is lied to: machines with a law broken in many ways, a ``step`` that is honest or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from test_faults import FAULTS, Fault, without

from engine.core.machine import build as builder
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import Finalize, Limit, Policy
from engine.core.step import Compiled, compile
from engine.verify.explore import explore
from engine.verify.prove import Prover, prove
from engine.verify.verdicts import Budget, Verdict
from engine.verify.world import World, around

NOT_PLAYED = {
    "a final call that is forgotten": "on `step` another law is broken before",
    "tools in a further attempt of the final call": "`step` makes every attempt of a final call final",
    "the end is not the end": "`step` knows no reply after the end",
    "a fallback without a client": "`step` has no client to go to",
    "a fallback of the final call with tools": "`step` makes a fallback of a final call final",
    "a call that waits for a person takes nothing": "every tool must ask",
    "a refusal keeps what was held": "every tool must ask",
    "a consultant's choice is ignored": "the host is not asked on `step`",
}
"""Faults whose shortest run cannot be played, and why: they are not known, never proved."""

NOT_POSSIBLE = "a denied tool runs"
"""The policy denies nothing, so that no tool of it is denied."""


def lying(monkeypatch: pytest.MonkeyPatch, policy: Policy, mutate: Callable[[Machine], Machine]) -> Compiled:
    """A ``step`` made from the mutated machine."""
    honest = builder.build
    for where in ("engine.core.step.build", "engine.core.core.build"):
        monkeypatch.setattr(where, lambda subject: mutate(honest(subject)))
    return compile(policy, reference=True)


def law(fault: Fault, compiled: Compiled) -> Verdict:
    found, _ = Prover(fault.policy, Budget(states=20_000), compiled=compiled).laws()
    return next(v for v in found if v.name == fault.law)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_broken_law_is_refuted_by_a_shortest_run_on_step(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = lying(monkeypatch, fault.policy, fault.mutate)
    verdict = law(fault, compiled)
    if fault.name in NOT_PLAYED:
        assert verdict.result == "unknown"
        assert "a search has found a run that could not be played" in verdict.why
        assert verdict.trace
        return
    if fault.name == NOT_POSSIBLE:
        assert verdict.result == "proved"
        return
    assert verdict.result == "refuted"
    assert verdict.played
    machine = around(compiled.machine, fault.policy, World())
    shortest = next(b for b in explore(machine, laws_of(fault.policy)).broken if b.law == fault.law)
    assert len(verdict.trace) >= len(shortest.trace)
    state = compiled.initial
    for step in verdict.played:
        state, decision = compiled.step(state, step.event)
        assert decision == step.decision


def test_most_of_them_are_played() -> None:
    assert len(FAULTS) - len(NOT_PLAYED) - 1 >= 30


CALLS = Policy(name="p", limits=(Limit(resource="llm_calls", max=2, then=(Finalize(),)),))


def test_what_an_honest_step_does_not_do_is_not_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = compile(CALLS, reference=True)
    dishonest = lying(monkeypatch, CALLS, without("round.disobeyed"))
    honest.machine = dishonest.machine
    verdict = next(v for v in prove(CALLS, compiled=honest).verdicts if v.name == "L2")
    assert verdict.result == "unknown"
    assert verdict.played == ()
    assert [step.event for step in verdict.trace][-1] == "round"
    assert "`step` decides" in verdict.why


def test_a_rule_without_an_origin_breaks_its_law(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless(machine: Machine) -> Machine:
        rules = tuple(replace(r, origin="") if r.id == "call.admit" else r for r in machine.rules["call"])
        return replace(machine, rules={**machine.rules, "call": rules})

    verdicts = prove(CALLS, compiled=lying(monkeypatch, CALLS, nameless)).verdicts
    verdict = next(v for v in verdicts if v.name == "L15")
    assert (verdict.result, verdict.why) == ("refuted", "call.admit names no line and no default")
