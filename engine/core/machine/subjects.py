"""A limit as the laws see it: its ladder, what is left of it, and when something is due, in ghosts and observations."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.machine import asking_laws
from engine.core.machine.expr import FALSE, TRUE, Expr, all_of, any_of
from engine.core.machine.monitors import holds, none, seen_as
from engine.core.machine.plan import RESERVE, Plan
from engine.core.policy import Ask, Consult, Extend, Finalize, Policy, Step, Stop

ROUND_LIMITS = ("tool_iterations", "tool_calls", "unknown_tools")
"""Limits of which a round, or a part of it, may be too much."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A limit and the ghosts about it: what is ``left``, the ``place`` in its ladder, and how a round ended."""

    plan: Plan
    steps: tuple[Step, ...]
    moves: bool
    waits: bool
    """Its finalization follows only from something that did not fit."""

    @classmethod
    def of(cls, plan: Plan, policy: Policy) -> Subject:
        limit = plan.limit
        steps: list[Step] = []
        ended = False
        for step in limit.then:
            # Behind the step that ends a ladder stands only what a consultant may choose.
            if ended and not any(isinstance(s, Consult) for s in steps):
                break
            ended = ended or isinstance(step, Stop) or (isinstance(step, Finalize) and step.using is None)
            # Time is extended without a decision, and doubling nothing is no step at all.
            untaken = isinstance(step, Extend) and (limit.resource == "wall" or not limit.max)
            if not untaken and not asking_laws.unreachable(step, limit.max or 0):
                steps.append(step)
        while steps and isinstance(steps[-1], Stop):
            steps.pop()
        moves = any(isinstance(s, Extend | Ask | Consult) or (isinstance(s, Finalize) and s.using) for s in steps)
        reactive = policy.finalization.mode == "reactive"
        waits = reactive and limit.resource in ("tool_iterations", "tool_calls")
        return cls(plan, tuple(steps), moves, waits or (limit.resource == "unknown_tools" and limit.max == 0))

    @property
    def left(self) -> str:
        return f"left_of_{self.plan.name}"

    @property
    def place(self) -> str:
        return f"place_in_{self.plan.name}"

    @property
    def crowded(self) -> str:
        return f"crowded_{self.plan.name}"

    @property
    def awaited(self) -> str:
        return f"awaited_{self.plan.name}"

    @property
    def counted(self) -> bool:
        return self.plan.counted

    @property
    def in_rounds(self) -> bool:
        return self.plan.resource in ROUND_LIMITS

    @property
    def mine(self) -> Expr:
        """The observation is about this limit."""
        return seen_as("limit", self.plan.index + 1)

    @property
    def gone(self) -> Expr:
        """Nothing of it is left."""
        return none(self.left) if self.counted else seen_as("gone", 1)

    @property
    def crammed(self) -> Expr:
        """So little is left that an ordinary call does not fit, or none at all."""
        if self.counted:
            return none(self.left)
        return any_of(seen_as("gone", 1), all_of(holds("finalized", 0), seen_as("tight", 1)))

    def grant(self) -> int:
        """What its one extension may add: at most the original maximum."""
        maximum = self.plan.limit.max or 0
        return next((min(s.by, maximum) for s in self.steps if isinstance(s, Extend)), 0)

    def asked(self) -> tuple[int, Ask] | None:
        """Where the ladder asks a person, if it does."""
        return next(((i, s) for i, s in enumerate(self.steps) if isinstance(s, Ask)), None)

    def finalizes(self) -> Expr:
        """The ladder stands at a finalization."""
        places = [i for i, s in enumerate(self.steps) if isinstance(s, Finalize)]
        if not self.moves:
            return TRUE if places else FALSE
        return any_of(*(holds(self.place, i) for i in places))

    def consults(self) -> Expr:
        """The ladder stands at a consultant."""
        return any_of(*(holds(self.place, i) for i, s in enumerate(self.steps) if isinstance(s, Consult)))

    def due(self) -> Expr:
        """The next call (or attempt) must be the final one, as far as this limit is concerned."""
        return all_of(self.reached(), self.finalizes())

    def reached(self) -> Expr:
        """What an ordinary call needs of it is not there, or a round did not fit."""
        if self.plan.resource in ("llm_calls", "llm_attempts"):
            return holds(self.left, 1)
        if not self.counted:
            return seen_as(self.plan.field, RESERVE)
        if self.waits:
            return holds(self.awaited, 1)
        return any_of(holds(self.awaited, 1), none(self.left)) if self.in_rounds else none(self.left)
