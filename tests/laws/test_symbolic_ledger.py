"""The arithmetic of a tree's ledger for all numbers: proved of the code that runs, and refuted where it is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from engine.core import draws, pooling
from engine.core.pooling import Pooling
from engine.verify.symbolic.executing import as_terms, term_of, unknown
from engine.verify.symbolic.ledger import PROMISES, Kept, ask_about_the_ledger


def answers() -> dict[str, Kept]:
    return {kept.promise: kept for kept in ask_about_the_ledger(time.perf_counter() + 60)}


def test_the_books_are_kept_for_all_numbers() -> None:
    assert answers() == {name: Kept(name) for name in PROMISES}


def carve_returned_twice(patch: pytest.MonkeyPatch) -> None:
    def give_back(self: Pooling, id: str) -> None:
        node = self.nodes[id]
        unused = [0] * len(draws.RESOURCES)
        for carve in node.carves:
            unused[carve.resource] += min(0, carve.taken - carve.amount)
        self._take(node.parent, tuple(unused))  # type: ignore[arg-type]

    patch.setattr(Pooling, "give_back", give_back)


def carve_kept_for_ever(patch: pytest.MonkeyPatch) -> None:
    def give_back(self: Pooling, id: str) -> None:
        self.nodes[id] = structs.replace(self.nodes[id], carves=())

    patch.setattr(Pooling, "give_back", give_back)


def carve_not_covering(patch: pytest.MonkeyPatch) -> None:
    def covered(carves: Any, taken: Any) -> Any:
        return tuple(structs.replace(carve, taken=carve.taken + taken[carve.resource]) for carve in carves)

    patch.setattr(pooling, "_covered", covered)


def held_twice(patch: pytest.MonkeyPatch) -> None:
    def hold(self: Pooling, id: str, key: str, amount: Any) -> None:
        self._holds.setdefault(id, {})[key] = amount
        self._move(id, draws.NOTHING, amount)

    def right(self: Pooling, id: str, key: str) -> None:
        self._climb(id, draws.NOTHING, draws.NOTHING, list(self._holds[id].pop(key)))

    patch.setattr(Pooling, "hold", hold)
    patch.setattr(Pooling, "release", right)


def charge_at_one_level(patch: pytest.MonkeyPatch) -> None:
    honest = Pooling._move

    def move(self: Pooling, id: str, used: Any, held: Any) -> None:
        honest(self, id, used, held)
        top = self.nodes["top"]
        pools = tuple(structs.replace(pool, used=pool.used - used[pool.resource]) for pool in top.pools)
        self.nodes["top"] = structs.replace(top, pools=pools)

    patch.setattr(Pooling, "_move", move)


def one_too_much(patch: pytest.MonkeyPatch) -> None:
    honest = Pooling._left

    def left(self: Pooling, id: str, carves: Any) -> Any:
        return [(node, pool, amount + 1) for node, pool, amount in honest(self, id, carves)]

    patch.setattr(Pooling, "_left", left)


def aside_counted_for_everybody(patch: pytest.MonkeyPatch) -> None:
    def left(self: Pooling, id: str, carves: Any) -> Any:
        found = []
        while id:
            node = self.nodes[id]
            found += [(node, pool, pool.maximum - pool.used - pool.held) for pool in node.pools]
            id = node.parent
        return found

    patch.setattr(Pooling, "_left", left)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "a carve is returned twice": (carve_returned_twice, "given back"),
    "a carve is never returned": (carve_kept_for_ever, "given back"),
    "what a carve covers is taken from the pools too": (carve_not_covering, "books"),
    "what is released comes on top": (held_twice, "books"),
    "usage is not charged at the root": (charge_at_one_level, "books"),
    "one more is left than there is": (one_too_much, "no decision"),
    "what is set aside is left to everybody": (aside_counted_for_everybody, "no decision"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refuted_with_numbers_that_are_played(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, promise = FAULTS[name]
    fault(monkeypatch)
    kept = answers()[promise]
    assert kept.shown, kept
    assert kept.numbers
    assert max(kept.numbers.values()) <= 1_000


def test_a_module_has_its_own_max_again() -> None:
    with as_terms(pooling):
        assert term_of(vars(pooling)["max"](1, unknown("a"))) == "(ite (<= |a| 1) 1 |a|)"
    assert "max" not in vars(pooling)


def test_without_time_nothing_is_known() -> None:
    assert {kept.why for kept in ask_about_the_ledger(time.perf_counter())} == {"its time was over"}
