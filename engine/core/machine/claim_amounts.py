"""Amounts in claims as classes: of all numbers, a search tells apart only those that the claim and the limits name.

A run's use of an amount only ever grows. So what is remembered is the class that it is in: ``[start, next start)``.
Nothing here knows how a run comes to use something.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from engine.core.machine.expr import FALSE, TRUE, Expr, Le, Lit, Not, Var, all_of
from engine.core.machine.machine import Set
from engine.core.machine.monitors import Ghost, On, seen_as
from engine.core.machine.plan import Plan
from engine.core.policy import Policy
from engine.core.vocabulary import DEFAULT_GRACE_MS

AMOUNTS = ("tokens", "input_tokens", "output_tokens", "cost", "wall")
"""What claims may compare and no machine counts."""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one resource, by where they start, in its unit; the first starts at 0.

    ``before_the_end``: how many of them a run can be in that is not stopping yet: time is over at a deadline, if it
    ``ends`` at one.
    """

    resource: str
    starts: tuple[int, ...]
    before_the_end: int
    ends: bool = False

    @property
    def event(self) -> str:
        """What takes a run into a higher class: tokens and money are spent together, time passes by itself."""
        return "passed" if self.resource == "wall" else "spent"

    @property
    def field(self) -> str:
        """The field of the event that says where the class starts that the run is in by then."""
        return f"to_{self.resource}"

    def end(self, number: int) -> int | None:
        """The largest amount of a class; ``None``: there is none."""
        return self.starts[number + 1] - 1 if number + 1 < len(self.starts) else None

    def of(self, amount: int) -> int:
        """The class that an amount is in."""
        return bisect_right(self.starts, amount) - 1

    def since(self, amount: int) -> int:
        """The first class in which no less is used; as many as there are where none is of that kind."""
        return bisect_left(self.starts, amount)

    def ghost(self) -> Ghost:
        """The class that a run is in, as an outsider sees it."""
        name = _seen(self.resource)
        moves = (On(self.event, Set(name, i), seen_as(self.field, x)) for i, x in enumerate(self.starts) if i)
        return Ghost(name, 0, tuple(moves))

    def compared(self, op: str, amount: int) -> Expr:
        """Is so much used, as the claim says?"""
        at_most, less = self._at_most(amount), self._at_most(amount - 1)
        terms: dict[str, Expr] = {
            "<=": at_most,
            "<": less,
            ">=": Not(less),
            ">": Not(at_most),
            "=": all_of(at_most, Not(less)),
            "!=": Not(all_of(at_most, Not(less))),
        }
        return terms[op]

    def _at_most(self, amount: int) -> Expr:
        known = self.of(amount)
        if known < 0 or known == len(self.starts) - 1:
            return FALSE if known < 0 else TRUE
        return Le(Var(_seen(self.resource)), Lit(known))


def classes_of(resource: str, amounts: Iterable[int], policy: Policy, plans: Iterable[Plan]) -> Classes:
    """The classes that claims about these amounts need, under a policy."""
    most = [plan.utmost() for plan in plans if plan.resource == resource]
    named = {start for amount in amounts for start in (amount, amount + 1)}
    if resource == "cost" and not policy.prices:
        return Classes(resource, (0,), 1)  # nothing has a price
    if resource != "wall" or not most:
        starts = tuple(sorted({0, *named, *most}))
        return Classes(resource, starts, len(starts))
    over = min(most)
    named = {start for start in named if 0 < start <= over + DEFAULT_GRACE_MS}
    starts = tuple(sorted({0, *named, over, over + 1} if named else {0}))
    return Classes(resource, starts, bisect_right(starts, over), ends=True)


def _seen(resource: str) -> str:
    return f"spent_{resource}"
