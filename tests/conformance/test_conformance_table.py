"""Every case has exactly one home, and ``docs/differences.md`` says so in the same numbers as the tests."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from pathlib import Path

from conformance_cases import CASES, DIFFERENT, REPRODUCED, SETS
from conformance_world import counters_translated
from test_conformance_runs import RUNS

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "differences.md"
HOMES = ("reproduced", "different", "not applicable", "later")


def register_everything() -> None:
    """Import every test of the cases, so that each has said what it reproduces or contradicts."""
    for path in sorted(HERE.glob("test_conformance_*.py")):
        importlib.import_module(path.stem)


def listed(heading: str) -> list[str]:
    """The ids of a section of the page: those before the colon of each of its lines."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", DOCS.read_text("utf-8"), re.M | re.S)
    assert section is not None, f"{DOCS.name} has no section {heading}"
    lines = re.findall(r"^- ((?:`[\w.-]+`,?\s*)+): ", section[1], re.M)
    return [id for line in lines for id in re.findall(r"`([\w.-]+)`", line)]


def homes() -> dict[str, list[str]]:
    """Where each case is at home; more or fewer than one is a mistake."""
    register_everything()
    found: dict[str, list[str]] = {id: [] for id in CASES}
    for home, ids in (
        ("reproduced", sorted(REPRODUCED)),
        ("different", sorted(DIFFERENT)),
        ("not applicable", listed("Not applicable")),
        ("later", listed("Later")),
    ):
        for id in ids:
            found[id].append(home)
    return found


def table() -> list[tuple[str, int, dict[str, int]]]:
    """Name, total and the number in each home, for each set of cases."""
    where = homes()
    counts = []
    for name, cases in SETS.items():
        by_home = Counter(where[id][0] for id in cases if where[id])
        counts.append((name, len(cases), {home: by_home[home] for home in HOMES}))
    return counts


def translated() -> int:
    return sum(counters_translated(CASES[id]) for id in RUNS)


def render() -> str:
    """The table as Markdown, as the page has it."""
    lines = [
        "| set | total | reproduced | different | not applicable | later |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, total, by_home in table():
        lines.append(f"| {name} | {total} | {' | '.join(str(by_home[home]) for home in HOMES)} |")
    return "\n".join(lines)


def test_every_case_has_exactly_one_home() -> None:
    assert {id: found for id, found in homes().items() if len(found) != 1} == {}


def test_the_page_lists_exactly_the_cases_that_tests_contradict() -> None:
    register_everything()
    on_page = listed("Different")
    assert sorted(on_page) == sorted(DIFFERENT)
    assert len(on_page) == len(set(on_page))


def test_the_numbers_on_the_page_are_the_tests() -> None:
    text = DOCS.read_text("utf-8")
    assert render() in text
    assert f"Of the reproduced call-limit cases, {translated()} are whole runs" in text
    for _, total, by_home in table():
        assert sum(by_home.values()) == total
