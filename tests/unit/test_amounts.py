"""What is left of tokens, money and time, at every boundary."""

from __future__ import annotations

import pytest

from engine.core.amounts import Amounts
from engine.core.machine.build import build
from engine.core.machine.plan import ENOUGH, NOTHING, RESERVE, plans_of
from engine.core.messages import Usage
from engine.core.policy import Extend, Finalize, Limit, Policy, Price
from engine.core.state import NO_TIME, Book, CallState, Run, RunExtra, Spent, Used

PRICE = Price(model="m", input=2_000_000, cached=1_000_000, output=10_000_000)


def amounts(*limits: Limit) -> tuple[Amounts, tuple[int, ...]]:
    policy = Policy(name="p", limits=limits, prices=(PRICE,))
    machine = build(policy)
    return Amounts(policy, plans_of(policy), machine), machine.initial


def state(limit: Limit, spent: Spent, size: int | None = None, at: int = 0, run: Run | None = None) -> int:
    table, values = amounts(limit)
    return table.states(values, Book(run or Run("r", 0), spent=spent), at, "m", size)[0]


TOKENS = Limit(resource="tokens", max=1_000, reserve=100, then=(Finalize(),))


@pytest.mark.parametrize(
    ("used", "size", "expected"),
    [
        (0, None, ENOUGH),
        (899, None, ENOUGH),
        (900, None, RESERVE),
        (999, None, RESERVE),
        (1_000, None, NOTHING),
        (1_001, None, NOTHING),
        (0, 899, ENOUGH),
        (0, 900, RESERVE),
        (0, 999, RESERVE),
        (0, 1_000, NOTHING),
    ],
)
def test_tokens_above_in_and_below_the_reserve(used: int, size: int | None, expected: int) -> None:
    assert state(TOKENS, Spent(input=used), size) == expected
    assert state(TOKENS, Spent(output=used), size) == expected


def test_without_a_finalization_there_is_nothing_to_keep() -> None:
    limit = Limit(resource="tokens", max=1_000, reserve=100)
    assert state(limit, Spent(input=999)) == ENOUGH
    assert state(limit, Spent(input=1_000)) == NOTHING


def test_input_and_output_are_counted_apart() -> None:
    spent = Spent(input=10, output=20)
    assert state(Limit(resource="input_tokens", max=11), spent, 1) == ENOUGH
    assert state(Limit(resource="input_tokens", max=11), spent, 2) == NOTHING
    assert state(Limit(resource="output_tokens", max=21), spent, 500) == ENOUGH
    assert state(Limit(resource="output_tokens", max=20), spent) == NOTHING


def test_cost_counts_the_size_of_the_request_at_its_price() -> None:
    limit = Limit(resource="cost", max=1_000)
    assert state(limit, Spent(cost=970), 10) == ENOUGH
    assert state(limit, Spent(cost=971), 10) == NOTHING


@pytest.mark.parametrize(
    ("at", "expected"), [(0, ENOUGH), (899, ENOUGH), (900, RESERVE), (999, RESERVE), (1_000, NOTHING)]
)
def test_wall(at: int, expected: int) -> None:
    limit = Limit(resource="wall", max=1_000, reserve=100, then=(Finalize(),))
    assert state(limit, Spent(), at=50 + at, run=Run("r", 50)) == expected


def test_a_thread_brings_what_its_earlier_runs_used() -> None:
    limit = Limit(resource="tokens", scope="thread", max=100)
    run = Run("r", 0, extra=RunExtra(thread="t", thread_used=Used(input_tokens=60, output_tokens=30)))
    assert state(limit, Spent(input=9), run=run) == ENOUGH
    assert state(limit, Spent(input=10), run=run) == NOTHING


def test_an_extension_raises_the_maximum_once_taken_and_the_wall_from_the_start() -> None:
    limit = Limit(resource="tokens", max=100, then=(Extend(by=500),))
    table, values = amounts(limit)
    taken = tuple(1 if v.name == "tokens_step" else x for v, x in zip(build_variables(limit), values, strict=True))
    assert [table.limits[0].maximum(v) for v in (values, taken)] == [100, 200]
    wall, start = amounts(Limit(resource="wall", max=100, then=(Extend(by=50),)))
    assert wall.deadline(start, Run("r", 10), final=False) == 160


def build_variables(limit: Limit):  # type: ignore[no-untyped-def]
    return build(Policy(name="p", limits=(limit,))).variables


def test_the_nearest_deadline_less_the_reserve_unless_final() -> None:
    table, values = amounts(
        Limit(resource="wall", max=1_000, reserve=300, then=(Finalize(),)), Limit(resource="wall", scope="run", max=900)
    )
    assert table.deadline(values, Run("r", 0), final=False) == 700
    assert table.deadline(values, Run("r", 0), final=True) == 900
    none, start = amounts()
    assert none.deadline(start, Run("r", 0), final=True) == NO_TIME


def output_bound(limit: Limit, spent: Spent, *, final: bool, size: int = 0, wanted: int | None = None) -> int | None:
    table, values = amounts(limit)
    call = CallState("1", 0, "c", model="m", input_tokens=size, max_output=wanted)
    return table.largest_output(values, Book(Run("r", 0), spent=spent), call, final)


def test_the_largest_output_leaves_the_reserve_to_the_final_call() -> None:
    assert output_bound(TOKENS, Spent(input=500), final=False, size=50) == 350
    assert output_bound(TOKENS, Spent(input=500), final=True, size=50) == 450
    assert output_bound(TOKENS, Spent(input=500), final=False, size=50, wanted=10) == 10
    assert output_bound(Limit(resource="output_tokens", max=70), Spent(output=20), final=False) == 50
    assert output_bound(Limit(resource="input_tokens", max=70), Spent(), final=False) is None
    assert output_bound(Limit(resource="cost", max=1_000), Spent(cost=100), final=False, size=100) == 70


def test_a_cumulative_report_is_charged_once() -> None:
    table, _ = amounts(Limit(resource="cost", max=10**9))
    call = CallState("1", 1, "c", model="m")
    spent = Spent()
    for report in (
        Usage(input=100),
        Usage(input=100, output=5),
        Usage(input=100, output=20),
        Usage(input=100, output=20),
    ):
        spent, charged = table.charge(spent, call, report)
        call = CallState("1", 1, "c", model="m", charged=charged)
    assert (spent.input, spent.output, spent.cost) == (100, 20, 400)
