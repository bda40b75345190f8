"""What two patterns have to do with each other, held against the matcher that the engine uses."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.policy import Policy, ToolRule
from engine.core.tool_rules import ToolRules
from policy_lang.globs import covers, overlap

PATTERNS = st.text("ab*?", min_size=1, max_size=6)
NAMES = ["".join(letters) for size in range(1, 7) for letters in product("abc", repeat=size)]


@pytest.mark.parametrize(
    ("wide", "narrow", "covered", "shared"),
    [
        ("*", "search_*", True, True),
        ("search_*", "*", False, True),
        ("search_*", "search_?", True, True),
        ("search_?", "search_*", False, True),
        ("search_*", "find_*", False, False),
        ("*_read", "file_*", False, True),
        ("shell", "Shell", False, False),
        ("s?ell", "shell", True, True),
        ("a*b*c", "axbyc", True, True),
        ("**", "*", True, True),
        ("a", "a", True, True),
        ("a?", "a", False, False),
    ],
)
def test_pairs(wide: str, narrow: str, covered: bool, shared: bool) -> None:
    assert covers(wide, narrow) is covered
    assert overlap(wide, narrow) is overlap(narrow, wide) is shared


def _matched(pattern: str) -> set[str]:
    """Names up to six letters that the engine takes the pattern to match."""
    rules = ToolRules(Policy(name="p", tools=(ToolRule(glob=pattern, deny=True),)))
    return {name for name in NAMES if rules.facts(name).denied}


@given(PATTERNS, PATTERNS)
def test_what_is_said_of_patterns_is_true_of_names(one: str, other: str) -> None:
    mine, its = _matched(one), _matched(other)
    if covers(one, other):
        assert its <= mine
    if mine & its:
        assert overlap(one, other)
    # six letters are enough for any name that two patterns of three signs share
    if len(one) + len(other) <= 6 and not mine & its:
        assert not overlap(one, other)


def test_very_long_patterns_take_no_time() -> None:
    long = "*a" * 200_000
    assert covers("*", long)
    assert covers(long, long)
    assert not covers(long, "a")
    assert overlap(long, "a")
