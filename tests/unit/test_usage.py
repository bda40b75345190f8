"""Costs in whole micro-dollars, and what a cumulative report adds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.messages import Usage
from engine.core.policy import Policy, Price
from engine.core.step import compile
from engine.core.usage import cost, cost_increase, increase, largest

SONNET = Price(model="sonnet", input=3_000_000, cached=300_000, output=15_000_000)
PLAIN = Price(model="plain", input=2_500_000, output=10_000_000)

counts = st.integers(0, 10**9)
usages = st.builds(Usage, input=counts, output=counts, cached=counts, cache_write=counts, reasoning=counts)
prices = st.builds(Price, model=st.just("m"), input=counts, cached=st.none() | counts, output=counts)


def test_prices_are_found_by_exact_name_only() -> None:
    amounts = compile(Policy(name="p", prices=(SONNET, PLAIN))).core.amounts
    assert amounts.price("plain") == PLAIN
    assert amounts.price("plain-2026-01-01") is None


@pytest.mark.parametrize(
    ("price", "usage", "expected"),
    [
        (SONNET, Usage(), 0),
        (SONNET, Usage(input=1_000_000), 3_000_000),
        (SONNET, Usage(input=1000, output=200), 6000),
        (SONNET, Usage(input=1000, output=200, cached=900), 3570),
        (SONNET, Usage(input=1000, output=200, cache_write=500, reasoning=150), 6000),
        (SONNET, Usage(input=100, cached=400), 30),
        (PLAIN, Usage(input=1000, cached=1000), 2500),
        (PLAIN, Usage(input=1), 3),
        (PLAIN, Usage(input=1, output=1), 13),
        (Price(model="free", input=0, output=0), Usage(input=10**12, output=10**12), 0),
        (Price(model="cheap", input=1, output=0), Usage(input=1), 1),
        (Price(model="dear", input=10**12, output=0), Usage(input=10**15 + 1), 10**21 + 10**6),
    ],
)
def test_cost_in_micro_dollars_rounded_up_once(price: Price, usage: Usage, expected: int) -> None:
    assert cost(price, usage) == expected


def test_the_largest_of_each_category_counts() -> None:
    one, two = Usage(input=10, output=1, cached=4), Usage(input=10, output=7, cached=2, reasoning=3)
    assert largest(one, two) == Usage(input=10, output=7, cached=4, reasoning=3)
    assert increase(one, two) == Usage(output=6, reasoning=3)
    assert increase(two, one) == Usage(cached=2)


@given(prices, st.lists(usages, max_size=5))
def test_cumulative_reports_are_charged_once(price: Price, reports: list[Usage]) -> None:
    growing = [Usage()]
    for report in reports:
        cached = min(report.cached, report.input)
        growing.append(
            Usage(
                input=growing[-1].input + report.input,
                output=growing[-1].output + report.output,
                cached=growing[-1].cached + cached,
                cache_write=growing[-1].cache_write + report.cache_write,
                reasoning=growing[-1].reasoning + report.reasoning,
            )
        )
    charged = sum(cost_increase(price, a, b) for a, b in itertools.pairwise(growing))
    assert charged == cost(price, growing[-1])
    assert sum((increase(a, b).input for a, b in itertools.pairwise(growing)), 0) == growing[-1].input


@given(prices, usages, usages)
def test_no_report_lowers_what_was_charged(price: Price, charged: Usage, reported: Usage) -> None:
    assert cost_increase(price, charged, reported) >= 0
    assert cost_increase(price, charged, charged) == 0
    more = increase(charged, reported)
    assert charged.input + more.input == largest(charged, reported).input
    assert charged.output + more.output == largest(charged, reported).output


@given(prices, st.lists(usages, min_size=1, max_size=4))
def test_rounding_adds_less_than_one_micro_dollar_to_an_attempt(price: Price, attempts: list[Usage]) -> None:
    for usage in attempts:
        cached = min(usage.cached, usage.input)
        rate = price.input if price.cached is None else price.cached
        exact = (usage.input - cached) * price.input + cached * rate + usage.output * price.output
        assert 0 <= cost(price, usage) * 1_000_000 - exact < 1_000_000
