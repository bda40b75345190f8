"""Promises about amounts for all numbers: proved of the code that runs, refuted with numbers where it is wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from smtlib import value

import engine.core.amounts as amounts_of
from engine.core.amounts import Amounts, add
from engine.core.machine.build import build
from engine.core.machine.machine import Machine
from engine.core.machine.plan import plans_of
from engine.core.messages import Usage
from engine.core.policy import Ask, Extend, Finalize, Limit, Policy, Price, Threshold
from engine.core.state import Book, BookExtra, Pools, Run, RunExtra, Spent, Used
from engine.core.thresholds import Thresholds
from engine.verify.symbolic.amounts import Answer, ask_about_amounts, classes
from engine.verify.symbolic.executing import TooMuch, term_of, unknown, ways
from engine.verify.symbolic.playing import play, reaching
from engine.verify.symbolic.subject import MODEL, SYMBOLS, Subject

PRICE = Price(model="m", input=150_000, output=600_000)


def limit(resource: Any, maximum: int, *then: Any, **more: Any) -> Limit:
    return Limit(resource=resource, max=maximum, then=then, **more)


TOKENS = Policy(name="p", limits=(limit("tokens", 50_000, Finalize(), reserve=2_000),))
EVERYTHING = Policy(
    name="p",
    prices=(PRICE,),
    thresholds=(Threshold(resource="tokens", percent=80, action="warn"),),
    limits=(
        limit("tokens", 50_000, Extend(by=10_000), Finalize(), reserve=2_000),
        limit("input_tokens", 40_000, scope="subtree"),
        limit("output_tokens", 9_000, Ask(up_to=500), Finalize(), reserve=500),
        limit("cost", 2_000_000, Finalize(), reserve=100_000, scope="thread"),
        limit("wall", 600_000, Finalize(), reserve=60_000),
    ),
)


def answers(policy: Policy, made: Callable[[Policy], Machine] = build) -> list[Answer]:
    return ask_about_amounts(policy, time.perf_counter() + 60, made)


def test_all_promises_are_proved_for_all_numbers() -> None:
    found = answers(EVERYTHING)
    assert {(a.promise, a.why, a.refuted) for a in found} == {
        (name, "", False) for name in ("reserve", "final", "answer", "bound", "overshoot", "charged", "threshold")
    }
    assert len(found) == 23


@pytest.mark.parametrize("maximum", [1, 2, 50])
@pytest.mark.parametrize("resource", ["tokens", "input_tokens", "output_tokens", "cost"])
def test_the_overshoot_is_reached_by_a_run(resource: str, maximum: int) -> None:
    policy = Policy(name="p", limits=(limit(resource, maximum),), prices=(PRICE,))
    shown = reaching(policy, plans_of(policy)[0], maximum, 7)
    assert shown.broken, shown.words
    assert f"{maximum - 1 + 7} used" in shown.words


# -- faults -----------------------------------------------------------------------------------------


def needing(resource: str, need: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(amounts_of._NEED, resource, need)


def keeping(by: int) -> Callable[[pytest.MonkeyPatch], None]:
    kept = amounts_of._kept

    def wrong(plan: Any, machine: Any) -> Any:
        right = kept(plan, machine)
        return lambda values: right(values) + by

    return lambda patch: patch.setattr(amounts_of, "_kept", wrong)


def charged_twice(patch: pytest.MonkeyPatch) -> None:
    def charge(self: Any, spent: Spent, call: Any, reported: Usage) -> Any:
        return add(spent, reported, 0), reported

    patch.setattr(Amounts, "charge", charge)


def smaller_report_gives_back(patch: pytest.MonkeyPatch) -> None:
    def increase(charged: Usage, reported: Usage) -> Usage:
        return Usage(reported.input - charged.input, reported.output - charged.output)

    patch.setattr(amounts_of, "increase", increase)


def threshold_late(patch: pytest.MonkeyPatch) -> None:
    def cross(self: Any, values: Any, book: Any, at: int) -> Any:
        (threshold, limits) = self.all[0]
        used, maximum = limits[0][1](values, book, at)
        if book.crossed or not used * 100 > threshold.percent * maximum:
            return book.crossed, ()
        return 1, ("note",)

    patch.setattr(Thresholds, "cross", cross)


def threshold_again(patch: pytest.MonkeyPatch) -> None:
    honest = Thresholds.cross

    def cross(self: Any, values: Any, book: Any, at: int) -> Any:
        return honest(self, values, Book(book.run, book.spent), at)

    patch.setattr(Thresholds, "cross", cross)


def others_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(amounts_of, "_others", lambda plan: lambda book: 0)


def input_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(amounts_of._USED, "tokens", lambda book, at: book.spent.output)


def uncapped(patch: pytest.MonkeyPatch) -> None:
    def maximum(plan: Any, machine: Any) -> Any:
        taken = machine.index(plan.step)
        by = next((step.by for step in plan.steps if isinstance(step, Extend)), 0)
        return lambda values: plan.maximum + by if values[taken] else plan.maximum

    patch.setattr(amounts_of, "_extended", maximum)


def unclamped(patch: pytest.MonkeyPatch) -> None:
    honest = Amounts.largest_output
    patch.setattr(
        Amounts, "largest_output", lambda self, values, book, call, final: honest(self, values, book, call, True)
    )


SUBTREE = Policy(name="p", limits=(limit("tokens", 50_000, Finalize(), reserve=2_000, scope="subtree"),))
EXTENDED = Policy(name="p", limits=(limit("tokens", 50_000, Extend(by=10), Finalize(), reserve=2_000),))
WATCHED = Policy(
    name="p", limits=(limit("tokens", 100),), thresholds=(Threshold(resource="tokens", percent=80, action="warn"),)
)
COST = Policy(name="p", prices=(PRICE,), limits=(limit("cost", 2_000_000, Finalize(), reserve=100_000),))

FAULTS: dict[str, tuple[Policy, Callable[[pytest.MonkeyPatch], None], str]] = {
    "the reserve is one too small": (TOKENS, keeping(-1), "reserve"),
    "the need is forgotten": (TOKENS, needing("tokens", lambda price, size: 0), "reserve"),
    "the token of output is forgotten": (TOKENS, needing("tokens", lambda price, size: size), "final"),
    "the request is forgotten": (TOKENS, needing("tokens", lambda price, size: 1), "final"),
    "the need is one too large": (TOKENS, needing("tokens", lambda price, size: size + 2), "final"),
    "the price of a request is forgotten": (COST, needing("cost", lambda price, size: 1), "reserve"),
    "used is counted without input": (TOKENS, input_forgotten, "overshoot"),
    "an attempt is charged twice": (TOKENS, charged_twice, "charged"),
    "a smaller report gives something back": (TOKENS, smaller_report_gives_back, "charged"),
    "others of the tree are forgotten": (SUBTREE, others_forgotten, "reserve"),
    "an extension is not capped": (EXTENDED, uncapped, "reserve"),
    "a reply may take the reserve": (TOKENS, unclamped, "bound"),
    "a threshold comes one late": (WATCHED, threshold_late, "threshold"),
    "a threshold is noted again": (WATCHED, threshold_again, "threshold"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted_with_numbers_that_are_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, fault, promise = FAULTS[name]
    fault(monkeypatch)
    found = {a.promise: a for a in answers(policy)}
    answer = found[promise]
    assert answer.refuted, found
    assert max(answer.numbers.values()) <= 1_000_000
    shown = play(policy, answer)
    assert shown.broken, shown.words


# -- the terms and the code -------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(len(EVERYTHING.limits)))
def test_the_terms_classify_as_the_code_does(place: int) -> None:
    policy = EVERYTHING.model_copy(update={"limits": (EVERYTHING.limits[place],)})
    machine, (plan,) = build(policy), plans_of(policy)
    subject, chance = Subject(policy, plan, machine), random.Random(place)
    extension = plan.extension()
    for at, extended in subject.places():
        for price in subject.prices:
            told = classes(subject, at, extended, price)
            for _ in range(150):
                n = {name: chance.choice((0, 1, 2, 5, 99, 1_000, 50_000)) for name in SYMBOLS}
                n |= {
                    "maximum": plan.maximum,
                    "reserve": plan.limit.reserve,
                    "extension": extension[1] if extension else 1,
                }
                before = Used(input_tokens=n["input_before"], output_tokens=n["output_before"], cost=n["cost_before"])
                run = Run("r", n["began"], extra=RunExtra(thread_used=before))
                extra = BookExtra(pools=Pools(others=((plan.limit.id, n["others"]),)))
                book = Book(run, Spent(n["input"], n["output"], 0, 0, 0, n["cost"]), extra)
                code = Amounts(policy, plans_of(policy), machine)
                values = subject.values(at, extended, n["granted"])
                expected = code.states(values, book, n["at"], MODEL, n["size"])[0]
                assert [way.result for way in told if value(way.when, n)] == [expected]


def test_code_is_run_once_for_each_way_through_it() -> None:
    found = list(ways(lambda: max(unknown("a"), unknown("b"), 3)))
    assert len(found) == 4
    for a, b in ((1, 2), (5, 4), (4, 5), (3, 3)):
        taken = [way for way in found if value(way.when, {"a": a, "b": b})]
        assert [value(term_of(way.result), {"a": a, "b": b}) for way in taken] == [max(a, b, 3)]


def test_what_is_not_linear_is_too_much() -> None:
    with pytest.raises(TooMuch, match="multiplied"):
        list(ways(lambda: unknown("a") * unknown("b")))
    with pytest.raises(TooMuch, match="divided"):
        list(ways(lambda: unknown("a") // unknown("b")))


def test_without_time_nothing_is_known() -> None:
    found = ask_about_amounts(TOKENS, time.perf_counter())
    assert found
    assert all(answer.why == "its time was over" and not answer.refuted for answer in found)
