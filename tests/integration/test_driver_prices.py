"""Clients that a run may switch to, where the cost is limited: refused before anything is called, with the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_fakes import Model

from engine import Driver, RunError
from engine.core.policy import Policy
from policy_lang import load

HEAD = 'policy "p" lang 1\n'
MONEY = "limits {\n  cost  $1\n}\n"
PRICES = 'prices {\n  "fake-1" input $1 output $2 per 1M\n}\n'
FALLBACK = "on llm_failure *  retry 1  then fallback spare\n"
LATER = "on llm_failure *  fallback good  then retry 1  then fallback good -> spare for call\n"
THRESHOLD = "at 50% of cost use spare\n"


def policy(tmp_path: Path, *parts: str) -> Policy:
    place = tmp_path / "p.policy"
    place.write_text("".join((HEAD, *parts)))
    return load(place)


def clients() -> dict[str, Model]:
    return {"main": Model(), "good": Model(), "spare": Model(model="other")}


@pytest.mark.parametrize(
    ("rule", "line"), [(FALLBACK, 5), (THRESHOLD, 5), (LATER, 5), ("at 50% of cost warn\n" + FALLBACK, 6)]
)
def test_a_client_without_a_price_is_named_with_the_line_that_switches_to_it(
    tmp_path: Path, rule: str, line: int
) -> None:
    rules, have = policy(tmp_path, MONEY, rule, PRICES), clients()
    with pytest.raises(RunError) as refused:
        Driver(rules, have)
    place = tmp_path / "p.policy"
    assert str(refused.value) == (
        f"{place}:{line}: a run may switch to the client `spare` and its model `other`, which has no price, and the "
        f"cost is limited ({place}:3): add it to `prices`"
    )
    assert not have["main"].requests


def test_what_is_priced_or_not_there_is_no_mistake(tmp_path: Path) -> None:
    rules = policy(tmp_path, MONEY, FALLBACK, PRICES)
    Driver(rules, {"main": Model(), "spare": Model()})
    Driver(rules, {"main": Model()}, allow_missing_clients=True)


def test_without_a_limit_on_the_cost_nothing_needs_a_price(tmp_path: Path) -> None:
    Driver(policy(tmp_path, FALLBACK), clients())
    Driver(policy(tmp_path, "limits {\n  cost  unlimited\n  tokens  5k\n}\n", FALLBACK), clients())


def test_a_client_that_nothing_switches_to_needs_no_price(tmp_path: Path) -> None:
    Driver(policy(tmp_path, MONEY, "on llm_failure *  fallback good\n", PRICES), clients())
