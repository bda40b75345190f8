"""Texts and quantities as people read them."""

from __future__ import annotations

import pytest

from engine.core.texts import duration, fill, money, quantity


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (1, "1ms"),
        (1_500, "1s500ms"),
        (330_000, "5m30s"),
        (86_400_000, "1d"),
        (90_061_001, "1d1h1m1s1ms"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "$0"),
        (2_000_000, "$2"),
        (2_500_000, "$2.50"),
        (1, "$0.000001"),
        (1_234_567, "$1.234567"),
        (100_000, "$0.10"),
        (-250_000, "-$0.25"),
    ],
)
def test_money(micro: int, text: str) -> None:
    assert money(micro) == text


def test_quantities_by_unit() -> None:
    assert [quantity(unit, 1_000) for unit in ("count", "duration", "money")] == ["1000", "1s", "$0.001"]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{left} left of {limit}", "3 left of 5"),
        ("{{left}}", "{left}"),
        ("{{{left}}}", "{3}"),
        ("{unknown} {", "{unknown} {"),
        ("}} {left", "} {left"),
        ("", ""),
    ],
)
def test_placeholders(template: str, text: str) -> None:
    assert fill(template, {"left": "3", "limit": "5"}) == text


def test_a_value_is_never_read_as_a_template() -> None:
    assert fill("{tool}", {"tool": "{left} {{", "left": "3"}) == "{left} {{"
