"""The cases of other systems as data, and which test reproduces or contradicts which of them.

A case is a configuration, a script of what happens, and what the other system lets be seen. Every case has exactly
one home: a test marked ``reproduces`` (our engine does the same), a test marked ``differs`` together with a line in
``docs/differences.md`` (our engine decides otherwise; the test pins what it does), or a line there under "Not
applicable" or "Later". ``test_conformance_table.py`` counts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Case = dict[str, Any]

_DATA = Path(__file__).with_name("data")


def _load(name: str) -> dict[str, Case]:
    cases = json.loads((_DATA / name).read_text("utf-8"))
    by_id = {case["id"]: case for case in cases}
    assert len(by_id) == len(cases), f"{name} has an id twice"
    return by_id


SETS: dict[str, dict[str, Case]] = {
    "call limits": _load("call_limits.json"),
    "error control": _load("error_control.json"),
    "trees and budgets": _load("budgets.json"),
    "field faults": _load("field_faults.json"),
}
CASES: dict[str, Case] = {id: case for cases in SETS.values() for id, case in cases.items()}

REPRODUCED: set[str] = set()
DIFFERENT: set[str] = set()


def reproduces(*ids: str) -> Callable[[Any], Any]:
    """The test asserts what these cases expect. It takes the case as its argument ``case``."""
    REPRODUCED.update(ids)
    return _each(ids)


def differs(*ids: str) -> Callable[[Any], Any]:
    """The test asserts what our engine does instead; ``docs/differences.md`` says why."""
    DIFFERENT.update(ids)
    return _each(ids)


def _each(ids: tuple[str, ...]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("case", [pytest.param(CASES[id], id=id) for id in ids])
