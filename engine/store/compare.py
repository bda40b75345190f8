"""Recorded runs under a policy: does it decide today what the journal says was decided?

Under the policy that a run is bound to, every decision must come out the same. Under another one,
what follows the first difference was recorded in answer to another decision, and tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from engine.core.decisions import NUMBERED, AnyDecision, bare
from engine.core.step import Compiled
from engine.store.protocol import Step


class Difference(Struct, frozen=True):
    """The first event whose decision is another one now. ``number`` counts events from 0."""

    number: int
    step: Step
    now: AnyDecision


def same(then: AnyDecision, now: AnyDecision) -> bool:
    """Do two decisions make a host do the same? Of those that start nothing only the kind counts."""
    if then.__class__ is not now.__class__:
        return False
    return not isinstance(then, NUMBERED) or bare(then) == bare(now)


def first_difference(compiled: Compiled, steps: Iterable[Step]) -> Difference | None:
    """The first recorded decision that this policy does not take, ``None`` if it takes them all."""
    state = compiled.initial
    for number, step in enumerate(steps):
        state, now = compiled.step(state, step.event)
        if not same(step.decision, now):
            return Difference(number, step, now)
    return None
