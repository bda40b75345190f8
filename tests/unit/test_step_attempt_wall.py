"""How long one attempt may take: as the policy says, ten minutes where it says nothing, for ever where it says so."""

from __future__ import annotations

import pytest

from engine.core.decisions import Call
from engine.core.events import CallRequested, RunStarted
from engine.core.policy import Limit, Policy
from engine.core.state import NO_TIME
from engine.core.step import compile

UNLIMITED = Limit(resource="attempt_wall", max=None)


@pytest.mark.parametrize("reference", [True, False])
@pytest.mark.parametrize(
    ("limits", "deadline"),
    [
        ((), 7 + 600_000),
        ((Limit(resource="attempt_wall", max=1_000),), 7 + 1_000),
        ((Limit(resource="attempt_wall", max=2**53 - 1),), 7 + 2**53 - 1),
        ((UNLIMITED,), NO_TIME),
        ((UNLIMITED, Limit(resource="wall", max=5_000)), 5_000),
        ((Limit(resource="attempt_wall", max=1_000), Limit(resource="wall", max=500)), 500),
    ],
)
def test_the_deadline_of_an_attempt(limits: tuple[Limit, ...], deadline: int, reference: bool) -> None:
    compiled = compile(Policy(name="p", limits=limits), reference=reference)
    state, _ = compiled.step(compiled.initial, RunStarted(0, "r"))
    _, decision = compiled.step(state, CallRequested(7, "1", "m"))
    assert isinstance(decision, Call)
    assert decision.deadline == deadline
