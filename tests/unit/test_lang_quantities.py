"""Quantities: what they are worth, what is refused, what is suggested."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core import texts
from policy_lang.quantities import (
    COUNT,
    DURATION,
    MAX,
    MONEY,
    PERCENT,
    Quantity,
    Wrong,
    count_text,
    duration_text,
    misfit,
    money_text,
    parse,
    text_of,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("0", COUNT, 0),
        ("007", COUNT, 7),
        ("1_000", COUNT, 1_000),
        ("10k", COUNT, 10_000),
        ("1.5k", COUNT, 1_500),
        ("0.001k", COUNT, 1),
        ("2.5M", COUNT, 2_500_000),
        ("3G", COUNT, 3_000_000_000),
        ("2.0", COUNT, 2),
        (str(MAX), COUNT, MAX),
        ("250ms", DURATION, 250),
        ("5m30s", DURATION, 330_000),
        ("1d2h3m4s5ms", DURATION, 93_784_005),
        ("0s", DURATION, 0),
        ("$0", MONEY, 0),
        ("$2.50", MONEY, 2_500_000),
        ("$0.000001", MONEY, 1),
        ("$1_000", MONEY, 1_000_000_000),
        ("80%", PERCENT, 80),
    ],
)
def test_worth(text: str, dimension: str, value: int) -> None:
    assert parse(text) == Quantity(dimension, value, text)


@pytest.mark.parametrize(
    ("text", "code", "better"),
    [
        ("-1", "P207", ""),
        ("-5m", "P207", ""),
        ("-$3", "P207", ""),
        (str(MAX + 1), "P207", ""),
        ("9" * 5_000, "P207", ""),
        ("99999999999d", "P207", ""),
        ("$9007199255", "P207", ""),
        ("1.5", "P206", ""),
        ("1.0001k", "P206", ""),
        ("$0.0000001", "P206", ""),
        ("5min", "P206", "5m"),
        ("5mins", "P206", "5m"),
        ("10sec", "P206", "10s"),
        ("2hours", "P206", "2h"),
        ("3days", "P206", "3d"),
        ("100msec", "P206", "100ms"),
        ("200K", "P206", "200k"),
        ("1.5K", "P206", "1.5k"),
        ("3bn", "P206", "3G"),
        ("1.5h", "P206", "1h30m"),
        ("0.5s", "P206", "500ms"),
        ("1h30", "P206", "1h30m"),
        ("2m15", "P206", "2m15s"),
        ("1e6", "P206", "1M"),
        ("12.5%", "P206", "12%"),
        ("30s5m", "P206", ""),
        ("5m5m", "P206", ""),
        ("0x10", "P206", ""),
        ("1__0", "P206", ""),
        ("1_", "P206", ""),
        ("5y", "P206", ""),
        ("$5k", "P206", ""),
        ("5.m", "P206", ""),
    ],
)
def test_refused(text: str, code: str, better: str) -> None:
    found = parse(text)
    assert isinstance(found, Wrong)
    assert (found.code, found.better) == (code, better)
    if better:
        assert isinstance(parse(better), Quantity)


@pytest.mark.parametrize(
    ("text", "wanted", "better"),
    [
        ("5m", COUNT, "5M"),
        ("30s", COUNT, ""),
        ("$5", COUNT, ""),
        ("30", DURATION, "30s"),
        ("5M", DURATION, "5m"),
        ("5", MONEY, "$5"),
        ("5k", MONEY, ""),
        ("80", PERCENT, "80%"),
        ("80%", COUNT, ""),
    ],
)
def test_the_wrong_dimension(text: str, wanted: str, better: str) -> None:
    found = parse(text)
    assert isinstance(found, Quantity)
    help, replacement = misfit(found, wanted)
    assert help
    assert replacement == better
    if better:
        again = parse(better)
        assert isinstance(again, Quantity)
        assert again.dimension == wanted


@given(st.integers(0, MAX))
def test_every_amount_can_be_written(value: int) -> None:
    for dimension, write in ((COUNT, count_text), (DURATION, duration_text), (MONEY, money_text)):
        assert parse(write(value)) == Quantity(dimension, value, write(value))


@given(st.integers(0, MAX))
def test_a_run_tells_money_and_times_as_a_file_writes_them(value: int) -> None:
    assert money_text(value) == texts.money(value)
    assert duration_text(value) == texts.duration(value)


@given(st.text(alphabet="0123456789_.kMGmshd$%-eE", min_size=1, max_size=80))
def test_any_text_is_judged(text: str) -> None:
    found = parse(text)
    assert isinstance(found, Quantity | Wrong)
    if isinstance(found, Quantity):
        assert 0 <= found.value <= MAX


def test_unlimited_is_written_as_the_word() -> None:
    assert text_of(None, COUNT) == "unlimited"
    assert text_of(80, PERCENT) == "80%"
    assert text_of(90_000, DURATION) == "1m30s"
