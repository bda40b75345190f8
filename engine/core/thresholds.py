"""Soft thresholds: what ``at P% of RESOURCE`` notes and tells, once a run each.

A note steers nothing; a ``tell`` adds a transient notice to the next ordinary request, a ``use`` sends later calls
to another client.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.decisions import Note
from engine.core.machine.plan import Plan, origin_of
from engine.core.policy import Policy, Threshold
from engine.core.state import Book

Standing = Callable[[tuple[int, ...], Book, int], tuple[int, int]]
"""Of the machine's values, the book and a moment: what a limit has used, and its maximum as it stands."""


class Thresholds:
    """The thresholds of one policy, each a bit of the state's ``crossed`` and ``told``."""

    def __init__(self, policy: Policy, limits: tuple[tuple[Plan, Standing], ...]) -> None:
        ordered = sorted(policy.thresholds, key=lambda t: (t.resource, t.percent, t.action, t.text or t.client or ""))
        self.all = tuple((t, tuple(x for x in limits if x[0].resource == t.resource)) for t in ordered)
        self.tells = sum(1 << bit for bit, t in enumerate(ordered) if t.action == "tell")
        self.uses = sum(1 << bit for bit, t in enumerate(ordered) if t.action == "use")

    def cross(self, values: tuple[int, ...], book: Book, at: int) -> tuple[int, tuple[Note, ...]]:
        """The thresholds crossed by now, and a note for each that was not before."""
        crossed = book.crossed
        notes: tuple[Note, ...] = ()
        for bit, (threshold, limits) in enumerate(self.all):
            if crossed >> bit & 1:
                continue
            for plan, standing in limits:
                used, maximum = standing(values, book, at)
                if used * 100 >= threshold.percent * maximum:
                    crossed |= 1 << bit
                    notes = (*notes, _note(threshold, plan, used, maximum))
                    break
        return crossed, notes

    def untold(self, crossed: int, told: int) -> tuple[tuple[int, Threshold, Plan], ...]:
        """Bit, threshold and limit of every ``tell`` that was crossed and not yet told."""
        due = crossed & ~told & self.tells
        if not due:
            return ()
        return tuple((bit, t, limits[0][0]) for bit, (t, limits) in enumerate(self.all) if due >> bit & 1 and limits)

    def unused(self, crossed: int, told: int) -> tuple[tuple[int, Threshold], ...]:
        """Bit and threshold of every ``use`` that was crossed and has not switched yet."""
        due = crossed & ~told & self.uses
        return tuple((bit, t) for bit, (t, _) in enumerate(self.all) if due >> bit & 1) if due else ()


def _note(threshold: Threshold, plan: Plan, used: int, maximum: int) -> Note:
    origin = origin_of(threshold.origin, f"at {threshold.percent}% of {threshold.resource}")
    return Note("warn", f"{threshold.percent}% of {plan.limit.id} used", plan.resource, used, maximum, origin)
