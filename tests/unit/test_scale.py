"""What a million runs cost is reckoned from figures alone: each of them moves what it should move, and nothing else."""

import json

import pytest

from benchmarks import scale
from benchmarks.scale import LIVES, SPREAD, Machine, cost, table

FIGURES = {
    "engine": "Restate",
    "steps": 11,
    "ours_ms": 2.0,
    "ours_cpu_ms": 3.0,
    "memory": 200e6,
    "memory_a_run": 20e3,
    "stored_a_run": 5e3,
}
MACHINE = Machine(64, 256e9)
BUSY = LIVES[0]


def of(runs=1_000_000, life=BUSY, **other):
    return cost({**FIGURES, **other}, life, runs, MACHINE)


def test_rates_are_those_of_the_arithmetic():
    found = of()
    assert BUSY.seconds == 65
    assert found.steps_s == pytest.approx(1_000_000 * 11 / 65)
    assert found.cores == pytest.approx(found.steps_s * 0.003)
    assert found.memory == pytest.approx(200e6 + 20e9)
    assert found.stored == pytest.approx(5e3 * 1_000_000 * 86_400 / 65)


def test_twice_as_many_runs_cost_twice_as_much():
    once, twice = of(), of(2_000_000)
    for name in ("steps_s", "cores", "stored"):
        assert getattr(twice, name) == pytest.approx(2 * getattr(once, name))
    assert twice.at == once.at


def test_what_gives_way_first_is_what_there_is_least_of():
    assert of().first == "cores"
    assert of(memory_a_run=10e6).first == "memory"
    assert of(engine="DBOS, PostgreSQL", ours_ms=20.0).first == SPREAD["DBOS, PostgreSQL"].once


def test_runs_that_sleep_need_memory_and_hardly_a_core():
    asleep = LIVES[-1]
    assert of(life=asleep).cores < of().cores / 100
    assert of(life=asleep).memory == of().memory


def test_the_table_has_a_line_for_each_engine_and_life():
    every = [{**FIGURES, "engine": name} for name in SPREAD]
    text = table(every, LIVES, 1_000_000, MACHINE)
    for name in SPREAD:
        assert text.count(f"| {name} |") == len(LIVES)


def test_the_figures_at_hand_are_enough(capsys, monkeypatch):
    every = json.loads(scale.FIGURES.read_text())["engines"]
    assert {each["engine"] for each in every} <= set(SPREAD)
    monkeypatch.setattr("sys.argv", ["scale"])
    assert scale.main() == 0
    assert "1,000,000 runs at the same time" in capsys.readouterr().out
