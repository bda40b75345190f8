"""An index of patterns gives what a look at every pair gives."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy_lang import glob_index
from policy_lang.glob_index import Names, Patterns
from policy_lang.globs import LONGEST, covers, overlap

PATTERNS = st.text("ab*?", min_size=1, max_size=7)


@pytest.fixture(autouse=True, params=[0, 3, 32])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """However many are looked at one by one."""
    with mock.patch.object(glob_index, "_FEW", request.param):
        yield


@given(st.lists(PATTERNS, max_size=16), PATTERNS)
@example(["*", "a", "a"], "a")
@example(["a*", "*a", "*a*", "a?", "?"], "ab")
@example(["a" * LONGEST + "*", "*"], "a" * (LONGEST + 1))
@example(["a", "b", "a*", "b*", "*a", "*b", "*ab*", "?", "**", "a?b"], "ab")
def test_what_has_to_do_with_a_pattern(known: list[str], glob: str) -> None:
    index = Patterns((each, number) for number, each in enumerate(known))
    covering = [number for number, each in enumerate(known) if covers(each, glob)]
    assert list(index.covering(glob)) == covering
    assert list(index.covering(glob, itself=False)) == [number for number in covering if known[number] != glob]
    assert list(index.overlapping(glob)) == [(each, number) for number, each in enumerate(known) if overlap(each, glob)]


@given(st.lists(PATTERNS, max_size=16), PATTERNS)
def test_a_pattern_that_is_taken_as_a_name(known: list[str], glob: str) -> None:
    name = glob.translate({ord("*"): "\0", ord("?"): "\0"})
    index = Patterns((each, each) for each in known)
    assert list(index.covering(name)) == [each for each in known if covers(each, name)]


@given(st.lists(st.text("ab", min_size=1, max_size=5), max_size=8), PATTERNS)
@example(["ab"], "**")
@example([], "*")
@example(["a\nb"], "*a\nb")
def test_names_that_match(names: list[str], glob: str) -> None:
    assert Names(names).has_match(glob) is any(covers(glob, name) for name in names)
