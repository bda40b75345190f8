"""Faults of a policy's machine, and who notices them."""

from __future__ import annotations

from engine.core.claims import AtMost, Claim
from engine.core.machine.build import build
from engine.core.machine.machine import check
from engine.core.policy import Finalize, Limit, Policy
from engine.verify.verdicts import Budget
from engine.verify.weakened import faults, weakened

POLICY = Policy(name="p", limits=(Limit(resource="llm_calls", max=2, then=(Finalize(),)),))
BUDGET = Budget(states=5_000, seconds=120.0, open=1)


def test_every_fault_leaves_a_machine() -> None:
    machine = build(POLICY)
    made = list(faults(machine))
    assert len(made) > 100
    assert all(fault.machine.rules != machine.rules for fault in made)
    for fault in made:
        check(fault.machine)


def test_the_laws_notice_a_final_call_that_is_not_made() -> None:
    found = weakened(POLICY, (), BUDGET)
    fates = {(one.fault.rule, one.fault.what): (one.fate, one.by) for one in found.judged}
    assert (len(found.judged), found.unfit) == (found.there, ())
    assert fates["call.final.llm_calls", "dropped"] == ("noticed", "F1")
    assert fates["tool.unknown", "dropped"] == ("noticed", "L14")
    assert found.noticed == sum(fate == "noticed" for fate, _ in fates.values()) > 20


def test_time_that_is_over_leaves_faults_untried() -> None:
    found = weakened(POLICY, (), Budget(states=5_000, seconds=0.4, open=1))
    assert len(found.judged) < found.there or found.why


def test_a_claim_that_does_not_hold_is_left_out() -> None:
    claim = Claim(name="none", says=AtMost(n=0, word="call"))
    assert weakened(POLICY, (claim,), Budget(states=5_000, seconds=1.0, open=1)).unfit == ("none",)
