"""Soft thresholds: what ``at P% of RESOURCE`` notes and tells, once a run each.

Notes steer nothing; a ``tell`` adds a transient notice to the next ordinary request.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.core.decisions import Note
from engine.core.machine.plan import Plan, origin_of
from engine.core.policy import Policy, Threshold

Standing = Callable[[Plan], tuple[int, int]]
"""What a limit has used, and its maximum as it stands."""


class Thresholds:
    """The thresholds of one policy, each a bit of the state's ``crossed`` and ``told``."""

    def __init__(self, policy: Policy, plans: tuple[Plan, ...]) -> None:
        ordered = sorted(policy.thresholds, key=lambda t: (t.resource, t.percent, t.action, t.text or ""))
        self._all = tuple((t, tuple(p for p in plans if p.resource == t.resource)) for t in ordered)
        self._tells = sum(1 << bit for bit, t in enumerate(ordered) if t.action == "tell")

    def cross(self, crossed: int, standing: Standing) -> tuple[int, tuple[Note, ...]]:
        """The thresholds crossed by now, and a note for each that was not before."""
        notes: list[Note] = []
        for bit, (threshold, plans) in enumerate(self._all):
            if crossed >> bit & 1:
                continue
            for plan in plans:
                used, maximum = standing(plan)
                if used * 100 >= threshold.percent * maximum:
                    crossed |= 1 << bit
                    notes.append(_note(threshold, plan, used, maximum))
                    break
        return crossed, tuple(notes)

    def untold(self, crossed: int, told: int) -> tuple[tuple[int, Threshold, Plan], ...]:
        """Bit, threshold and limit of every ``tell`` that was crossed and not yet told."""
        due = crossed & ~told & self._tells
        return tuple((bit, t, plans[0]) for bit, (t, plans) in enumerate(self._all) if due >> bit & 1 and plans)


def _note(threshold: Threshold, plan: Plan, used: int, maximum: int) -> Note:
    origin = origin_of(threshold.origin, f"at {threshold.percent}% of {threshold.resource}")
    return Note("warn", f"{threshold.percent}% of {plan.limit.id} used", plan.resource, used, maximum, origin)
