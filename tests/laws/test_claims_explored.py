"""What a search says about a claim, held against runs: a proved one is so in every run, a refuted one is not in its."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from engine.core.claims import Claim
from engine.core.policy import Policy
from engine.core.step import compile
from engine.testing.drawn_claims import claims
from engine.testing.drawn_policies import error_policies, policies
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.promises import ClaimWatch
from engine.verify.prove import Prover
from engine.verify.verdicts import Budget, Verdict

MORE = int(os.environ.get("MORE", "1"))

BUDGET = Budget(states=6_000, seconds=20.0, open=4)
"""A drawn policy with more states is left out: to explore it takes longer than it shows."""


def verdict(policy: Policy, claim: Claim) -> Verdict:
    (found,) = Prover(policy, BUDGET).prove([claim], laws=False).verdicts
    return found


def refuted_in(policy: Policy, claim: Claim, world: World) -> int:
    """The number of the event after which the claim is not so, in one run; 0 if it is so throughout."""
    watch = ClaimWatch(policy, [claim])
    Host(compile(policy), world, keep=lambda step: watch.see(step.event, step.decision)).run()
    return watch.refuted.get(claim.name, 0)


@settings(max_examples=60 * MORE, suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(
    st.one_of(policies(largest=3), error_policies(largest=1)), st.one_of(worlds(), error_worlds()), st.lists(claims())
)
def test_no_run_refutes_what_a_search_has_proved(policy: Policy, world: World, drawn: list[Claim]) -> None:
    refuted = [claim for claim in drawn if refuted_in(policy, claim, world)]
    if not refuted:
        reject()
    for claim in refuted:
        found = verdict(policy, claim)
        assert found.result != "proved", claim


@settings(max_examples=60 * MORE, suppress_health_check=[HealthCheck.filter_too_much], deadline=None)
@given(st.one_of(policies(largest=3), error_policies(largest=1)), claims())
def test_what_is_refuted_is_so_on_step(policy: Policy, claim: Claim) -> None:
    found = verdict(policy, claim)
    if found.result != "refuted":
        reject()
    watch, state, compiled = ClaimWatch(policy, [claim]), compile(policy).initial, compile(policy)
    for played in found.played:
        state, decision = compiled.step(state, played.event)
        assert decision == played.decision
        assert not watch.refuted
        watch.see(played.event, decision)
    assert watch.refuted == {"drawn": len(found.played)}
