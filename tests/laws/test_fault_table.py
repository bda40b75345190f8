"""The page on seeded faults tells what is found today."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from test_asking_faults import FAULTS as ASKING
from test_faults import FAULTS
from test_ledger_explored import FAULTS as LEDGER
from test_symbolic_amounts import FAULTS as AMOUNTS

ROOT = Path(__file__).resolve().parents[2]


def script() -> Any:
    spec = importlib.util.spec_from_file_location("fault_table", ROOT / "scripts" / "fault_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


def cells(column: int) -> list[str]:
    lines = [line for line in script().written().splitlines() if line.startswith("| ")]
    return [line.split(" | ")[column].strip("| ") for line in lines if not re.match(r"\| (fault|---)", line)]


def test_every_seeded_fault_is_on_the_page() -> None:
    told = cells(0)
    assert len(told) == len(set(told)) == len(FAULTS) + len(ASKING) + len(LEDGER) + len(AMOUNTS)
    assert {fault.name for fault in (*FAULTS, *ASKING)} | set(AMOUNTS) < set(told)


def test_random_runs_of_a_usual_number_find_most_of_them() -> None:
    assert sum(cell.startswith(("within 10,", "within 100,")) for cell in cells(4)) >= 28


def test_a_fault_that_is_found_otherwise_makes_the_page_stale() -> None:
    table = script()
    text = "| a | L1 | 7 events, < 30 ms |  | within 10, < 1 s | |"
    assert table.facts(text) == table.facts(text.replace("< 30 ms", "> 10 s").replace("10,", "100,"))
    assert table.facts(text) != table.facts(text.replace("7 events", "8 events"))
    assert table.facts(text) == table.facts(text.replace("within 10, < 1 s", "no: none of 100 runs"))
    assert table.facts(text) != table.facts(text.replace("7 events", "no"))


@pytest.mark.slow
def test_the_page_says_what_is_found_today() -> None:
    table = script()
    assert table.facts(table.written()) == table.facts(table.table(list(table.rows())))


@pytest.mark.slow
def test_each_fault_of_the_machine_is_found_with_limits_of_60_and_50_in_under_a_second() -> None:
    sys.path.append(str(ROOT))
    try:
        from benchmarks.faults import searches

        found = list(searches())
    finally:
        sys.path.remove(str(ROOT))
    assert len(found) == len(FAULTS) + len(ASKING)
    assert [name for seconds, name, events in found if not events or seconds > 1] == []
    assert max(events for *_, events in found) > 200
