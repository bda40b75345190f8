"""When the clocks of a tree stood still, as the histories of its runs say."""

from types import SimpleNamespace

import pytest

from engine.core import events as e
from engine.core.budgets import Budget, Ceiling
from engine.core.ledger import ASKING, WAITING, WORKING, Ledger
from engine.core.state import LimitHit, Pools, Refusal
from engine.run.clocks import History, wind

WALL = 1_000


def walled(counting=False):
    return Budget(wall=Ceiling("wall", "wall", "subtree", WALL, counting=counting))


def tree(*budgets):
    """A ledger with one node below another, and the seat of each."""
    ledger, ids = Ledger(), ["r"]
    ledger.open("r", budgets[0], 0)
    for budget in budgets[1:]:
        ledger.spawn(ids[-1], f"{ids[-1]}.1", "a", budget, 0)
        ids.append(f"{ids[-1]}.1")
    seats = [SimpleNamespace(id=id, role=SimpleNamespace(budget=b)) for id, b in zip(ids, budgets, strict=True)]
    return ledger, [History(seat, 0) for seat in seats]


def tick(history, at, activity):
    history.add(e.Tick(at), activity)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_clock_above_whoever_is_asked_stood_still_though_its_run_was_told_nothing(depth):
    ledger, histories = tree(*[walled()] * (depth + 1))
    for history in histories[:-1]:
        tick(history, 10, WAITING)
    for at in (100, 300):
        tick(histories[-1], at, ASKING)
        tick(histories[-1], at + 50, WORKING)
    wind(ledger, reversed(histories))
    assert {node.until(400) for node in ledger.nodes.values()} == {WALL + 100}
    assert [history.seat.stood for history in histories] == [0] * depth + [100]


def test_a_clock_that_stands_still_at_the_end_goes_on_doing_so():
    ledger, (root, child) = tree(walled(), walled())
    tick(root, 10, WAITING)
    tick(child, 100, ASKING)
    wind(ledger, [root, child])
    assert ledger.nodes["r"].until(5_000) == WALL + 4_900


def test_somebody_who_works_keeps_the_clocks_above_going():
    ledger, (root, child) = tree(walled(), walled())
    tick(child, 100, ASKING)
    tick(root, 200, WAITING)
    tick(child, 300, "")
    wind(ledger, [root, child])
    assert [ledger.nodes[id].until(400) for id in ("r", "r.1")] == [WALL + 100, WALL + 200]


def test_a_wall_that_counts_approvals_does_not_stand_still():
    ledger, (root, child) = tree(walled(counting=True), walled())
    tick(root, 10, WAITING)
    tick(child, 100, ASKING)
    tick(child, 300, WORKING)
    wind(ledger, [root, child])
    assert [ledger.nodes[id].until(400) for id in ("r", "r.1")] == [WALL, WALL + 200]


def test_no_wall_is_over_before_somebody_was_shown_that_it_is():
    ledger, (root, child) = tree(walled(), Budget())
    above = Refusal(LimitHit("wall", "subtree", "r", WALL, WALL), "limit wall")
    child.add(e.PoolsSeen(100, Pools(deadline=WALL + 70, wall=above)), WORKING)
    child.add(e.PoolsSeen(200, Pools(deadline=WALL + 20, wall=above)), WORKING)
    wind(ledger, [root, child])
    assert ledger.nodes["r"].until(300) == WALL + 70
