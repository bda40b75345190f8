"""One limit on an amount with symbols for its numbers: what production computes from them, and what is meant by it.

``amounts`` and ``book`` are handed to production code that is run on symbols; ``left``, ``kept`` and ``fits`` are the
same in words of their own, read off the semantics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.core.amounts import Amounts
from engine.core.machine.machine import Machine
from engine.core.machine.plan import Plan
from engine.core.policy import Consult, Extend, Finalize, Policy, Price, Stop
from engine.core.state import Book, BookExtra, Pools, Run, RunExtra, Spent, Used
from engine.verify.symbolic.executing import Way, unknown
from engine.verify.symbolic.terms import Term, Truth, either, every, le, minus, plus, symbol

SYMBOLS = {
    "maximum": 1,
    "reserve": 0,
    "extension": 1,
    "granted": 0,
    "input": 0,
    "output": 0,
    "cost": 0,
    "input_before": 0,
    "output_before": 0,
    "cost_before": 0,
    "others": 0,
    "size": 0,
    "began": 0,
    "at": 0,
    "reply": 0,
    "more_input": 0,
    "more_output": 0,
}
"""Every number there is, with the least that it may be: tokens, micro-dollars, milliseconds."""

MODEL = "m"

_LATEST = 1 << 50
"""The last moment (ms) that is looked at: long before the one that means never."""


class Subject:
    """One limit of a policy."""

    def __init__(self, policy: Policy, plan: Plan, machine: Machine) -> None:
        self.plan, self.machine = plan, machine
        self.prices: tuple[Price | None, ...] = policy.prices if plan.resource == "cost" else (None,)
        self._policy = policy
        self.classes: dict[object, list[Way[int]]] = {}
        reserve = unknown("reserve") if plan.limit.reserve else 0
        steps = tuple(
            s.model_copy(update={"by": unknown("extension")}) if isinstance(s, Extend) else s for s in plan.steps
        )
        limit = plan.limit.model_copy(update={"reserve": reserve})
        self.unknown = replace(plan, maximum=unknown("maximum"), steps=steps, limit=limit)

    @property
    def known(self) -> Truth:
        """What holds of the symbols; a limit keeps less for its end than there is of it."""
        least = (le(x, symbol(name)) for name, x in SYMBOLS.items())
        kept = le(symbol("reserve"), minus(symbol("maximum"), 1))
        return every((*least, kept, le(symbol("began"), symbol("at")), le(symbol("at"), _LATEST)))

    def places(self) -> Iterator[tuple[int, int]]:
        """Each place of the ladder, and whether its extension has been taken there."""
        extension = self.plan.extension()
        for place in range(len(self.plan.steps) + 1 if self.plan.step else 1):
            if self.plan.extended:
                yield from ((place, taken) for taken in (0, 1))
            else:
                yield place, int(extension is not None and place > extension[0])

    def values(self, place: int, extended: int, granted: Any = None) -> tuple[Any, ...]:
        """The machine's variables there."""
        known: dict[str | None, Any] = {self.plan.step: place, self.plan.extended: extended}
        known[self.plan.granted] = unknown("granted") if granted is None else granted
        return tuple(known.get(v.name, v.initial) for v in self.machine.variables)

    def amounts(self, price: Price | None) -> Amounts:
        """Production's own. Only while code is run on symbols."""
        prices = () if price is None else (price.model_copy(update={"model": MODEL}),)
        return Amounts(self._policy.model_copy(update={"prices": prices}), (self.unknown,), self.machine)

    def book(self, *, later: bool = False) -> Book:
        """What has been used, or, ``later``, that and a reply."""
        input, output, cost = unknown("input"), unknown("output"), unknown("cost")
        if later:
            input, output, cost = (
                input + unknown("more_input"),
                output + unknown("more_output"),
                cost + unknown("reply"),
            )
        before = Used(
            input_tokens=unknown("input_before"), output_tokens=unknown("output_before"), cost=unknown("cost_before")
        )
        run = Run("r", unknown("began"), extra=RunExtra(thread_used=before))
        pools = Pools(others=((self.plan.limit.id, unknown("others")),))
        return Book(run, Spent(input, output, 0, 0, 0, cost), BookExtra(pools=pools))

    # ---- what is meant

    def maximum(self, extended: int) -> Term:
        """With what the ladder adds, at most doubled, and what people have granted."""
        granted: Term = symbol("granted") if self.plan.question() else 0
        by = either(le(symbol("extension"), symbol("maximum")), symbol("extension"), symbol("maximum"))
        return plus(plus(symbol("maximum"), by if extended else 0), granted)

    def used(self) -> Term:
        """By the run, and by all whose use counts where the limit outlasts a run."""
        if self.plan.resource == "wall":
            return either(le(symbol("began"), symbol("at")), minus(symbol("at"), symbol("began")), 0)
        names = {"tokens": ("input", "output"), "input_tokens": ("input",), "output_tokens": ("output",)}
        total: Term = 0
        for name in names.get(self.plan.resource, ("cost",)):
            total = plus(total, symbol(name))
            if self.plan.limit.scope == "thread":
                total = plus(total, symbol(f"{name}_before"))
        return total if self.plan.limit.scope == "run" else plus(total, symbol("others"))

    def left(self, extended: int) -> Term:
        return minus(self.maximum(extended), self.used())

    def kept(self, place: int) -> Term:
        """The reserve, while a finalization lies ahead."""
        return symbol("reserve") if self.plan.limit.reserve and self.finalizes(place) else 0

    def finalizes(self, place: int) -> bool:
        """Can the ladder still come to a final call?"""
        chosen = False
        for step in self.plan.steps[place:]:
            if isinstance(step, Finalize) or (isinstance(step, Stop) and not chosen):
                return isinstance(step, Finalize)
            chosen = chosen or isinstance(step, Consult)
        return False

    def fits(self, room: Term, price: Price | None) -> Truth:
        """Is there room for a request of ``size`` tokens and one token of output?"""
        size = symbol("size")
        if self.plan.resource == "tokens":
            return le(plus(size, 1), room)
        if self.plan.resource == "input_tokens":
            return every((le(size, room), le(1, room)))
        if self.plan.resource == "cost" and price is not None:
            return every((le(plus(f"(* {price.input} {size})", price.output), _millions(room)), le(1, room)))
        return le(1, room)

    def within(self, output: Term, room: Term, price: Price | None) -> Truth:
        """Does a request of ``size`` with so much output stay within the room?"""
        size = symbol("size")
        if self.plan.resource == "tokens":
            return le(plus(size, output), room)
        if self.plan.resource == "output_tokens":
            return le(output, room)
        assert price is not None
        return le(plus(f"(* {price.input} {size})", f"(* {price.output} {output})"), _millions(room))


def _millions(room: Term) -> Term:
    """Prices are for a million tokens, and what something costs is rounded up."""
    return f"(* 1000000 {room})"
