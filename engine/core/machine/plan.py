"""Limits as the machine sees them: in one fixed order, each with its variables and its ladder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.machine.expr import TRUE, Eq, Expr, Field, Le, Lit, Var
from engine.core.policy import Ask, Consult, Extend, Finalize, Limit, Origin, Policy, Step, Stop
from engine.core.vocabulary import RESOURCES

DRAWN_BY_CALLS = ("tokens", "input_tokens", "output_tokens", "cost", "llm_calls", "llm_attempts")
"""Resources that must not be spent when a call is admitted, in the order in which they are looked at."""

ENOUGH, RESERVE, NOTHING = 2, 1, 0
"""What an amount has left for the next call: enough, only what is kept for the final call, or too little for any."""

_POOLS_FIRST = {"subtree": 0, "node": 0, "run": 1, "thread": 2}
_SEEN_ORDER = {name: i for i, name in enumerate((*DRAWN_BY_CALLS, *RESOURCES))}


@dataclass(frozen=True, slots=True)
class Plan:
    """One limit with a maximum. ``index`` is its place among all plans; effects and outcomes name it by that."""

    index: int
    limit: Limit
    name: str
    maximum: int
    """In the limit's unit, with the grant of its ladder where that needs no decision (``wall``)."""
    steps: tuple[Step, ...]
    """The ladder without what can never be reached; ``stop`` stands behind its last step."""
    origin: str
    resource: str
    counted: bool
    """Is it counted by the machine, or an amount?"""

    @property
    def fuel(self) -> str:
        """Variable that holds what is left (counted resources)."""
        return f"{self.name}_left"

    @property
    def field(self) -> str:
        """Event field that says what is left (amounts)."""
        return f"{self.name}_state"

    @property
    def step(self) -> str | None:
        """Variable that says how far the ladder has been climbed; none where it never moves."""
        moves = any(isinstance(s, Extend | Ask | Consult) or (isinstance(s, Finalize) and s.using) for s in self.steps)
        return f"{self.name}_step" if moves else None

    @property
    def extended(self) -> str | None:
        """Flag that the extension was taken; none where the place in the ladder says so, for no step can be passed."""
        extends = self.extension()
        passed = extends and (self.limit.atomic or any(isinstance(s, Consult) for s in self.steps[: extends[0]]))
        return f"{self.name}_extended" if passed else None

    @property
    def asks_left(self) -> str | None:
        """Fuel: how often a person may still be asked for more, where it is more than once."""
        asked = self.question()
        return f"{self.name}_asks_left" if asked and asked[1].times > 1 else None

    @property
    def granted(self) -> str:
        """Meter: what people have granted beyond the maximum."""
        return f"{self.name}_granted"

    @property
    def over(self) -> str:
        """Flag: something in the round at hand did not fit."""
        return f"{self.name}_over"

    def ladder(self) -> Iterator[tuple[int, Step]]:
        """Positions and steps, ``stop`` behind the last."""
        yield from enumerate((*self.steps, Stop()))

    def at(self, position: int) -> Expr:
        """The ladder stands at this position."""
        return TRUE if self.step is None else Eq(Var(self.step), Lit(position))

    def exhausted(self) -> Expr:
        """Nothing more fits."""
        return Le(Var(self.fuel), Lit(0)) if self.counted else Eq(Field(self.field), Lit(NOTHING))

    def tight(self) -> Expr:
        """Nothing more fits but what is kept for the final call."""
        return self.exhausted() if self.counted else Le(Field(self.field), Lit(RESERVE))

    def extension(self) -> tuple[int, int] | None:
        """Position of ``extend`` in the ladder and what it grants, capped at the original maximum."""
        for position, step in enumerate(self.steps):
            if isinstance(step, Extend):
                return position, min(step.by, self.maximum)
        return None

    def question(self) -> tuple[int, Ask] | None:
        """Position of ``ask`` in the ladder, and the step."""
        return next(((i, s) for i, s in enumerate(self.steps) if isinstance(s, Ask)), None)

    def up_to(self) -> int:
        """The most that one ``ask`` grants; 0 where nobody is asked."""
        asked = self.question()
        return (asked[1].up_to or self.maximum) if asked else 0

    def utmost(self) -> int:
        """The maximum with all that the ladder may grant."""
        extension, asked = self.extension(), self.question()
        granted = asked[1].times * self.up_to() if asked else 0
        return self.maximum + (extension[1] if extension else 0) + granted


def plans_of(policy: Policy) -> tuple[Plan, ...]:
    """The limits that bind, in an order that does not depend on the order they were written in."""
    binding = [x for x in policy.limits if x.max is not None and x.resource != "attempt_wall"]
    binding.sort(key=lambda x: (_POOLS_FIRST[x.scope or "run"], x.scope or "", _SEEN_ORDER[x.resource]))
    return tuple(_plan(index, limit) for index, limit in enumerate(binding))


def _plan(index: int, limit: Limit) -> Plan:
    name = limit.id.replace(" ", "_")
    maximum = limit.max or 0
    steps = _reachable(limit.then, maximum)
    if limit.resource == "wall":
        # Time is not admitted but passes, so its extension needs no decision: the deadline simply lies later.
        maximum += sum(min(s.by, maximum) for s in steps if isinstance(s, Extend))
        steps = tuple(s for s in steps if not isinstance(s, Extend))
    origin, counted = origin_of(limit.origin, f"limit {limit.id}"), RESOURCES[limit.resource].kind == "counted"
    return Plan(index, limit, name, maximum, steps, origin, limit.resource, counted)


def _reachable(steps: tuple[Step, ...], maximum: int) -> tuple[Step, ...]:
    """What stands behind a `stop` or `finalize` can be reached only by the choice of a consultant before it."""
    kept: list[Step] = []
    chosen = False
    for step in steps:
        if isinstance(step, Stop) and not chosen:
            break
        # At most doubled, nothing stays nothing: such a step cannot be taken, the next one counts from the start.
        if maximum or not (isinstance(step, Extend) or (isinstance(step, Ask) and step.up_to is None)):
            kept.append(step)
        chosen = chosen or isinstance(step, Consult)
        if isinstance(step, Finalize) and step.using is None and not chosen:
            break
    while kept and isinstance(kept[-1], Stop):
        kept.pop()  # one stands behind the last step anyway
    return tuple(kept)


def origin_of(origin: Origin | None, otherwise: str) -> str:
    """``file:line``, or what to say of a rule that stands in no file."""
    return str(origin) if origin else otherwise
