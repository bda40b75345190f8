"""Where the parts of a picture stand: nothing on top of anything else, nothing outside, texts in the room they have."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from graph_policies import MAIN, SIMPLE, TEXTS, made, unsearched
from hypothesis import given
from hypothesis import strategies as st

from policy_lang import load, loads
from policy_lang.graph.blocks import block
from policy_lang.graph.layout import Layout, Spot, laid_out, side
from policy_lang.graph.metrics import width, wrapped
from policy_lang.graph.picture import Item, Picture

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted([*ROOT.glob("spec_examples/*/*.policy"), *ROOT.glob("policy_lang/templates/*.policy")])


def apart(a: Spot, b: Spot) -> bool:
    return a.right <= b.left or b.right <= a.left or a.bottom <= b.top or b.bottom <= a.top


def check(picture: Picture) -> Layout:
    made = laid_out(picture, MAIN)
    spots = [*made.spots.items(), *((f"label {x.arrow}", x.spot) for x in made.labels if side(x) != "back")]
    for (one, a), (other, b) in combinations(spots, 2):
        assert apart(a, b), (one, other)
    for name, spot in spots:
        assert spot.left >= 0, name
        assert spot.top >= 0, name
        assert spot.right <= made.width, name
        assert spot.bottom <= made.height, name
    return made


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_overlaps_in_a_picture_with_all_that_could_be(name: str) -> None:
    check(unsearched(made(name)))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_nothing_overlaps_in_shipped_policies(path: Path) -> None:
    check(unsearched(load(path)))


def test_the_loop_runs_down_and_the_ends_are_to_the_right() -> None:
    made = check(unsearched(loads(SIMPLE, MAIN)))
    idle, calling, tools = (made.spots[name] for name in ("idle", "calling", "tools"))
    assert idle.x == calling.x == tools.x
    assert idle.y < calling.y < tools.y
    assert made.spots["final"].left > idle.right
    assert made.spots["finalized"].left > made.spots["final"].right


def test_many_agents_stand_below_one_another() -> None:
    agents = "".join(f'\nagent "a{n}" {{\n  llm_calls  3\n}}\n' for n in range(30))
    made = check(unsearched(loads(SIMPLE + agents, MAIN)))
    assert len({made.spots[f"agent a{n}"].y for n in range(30)}) == 30


# ---- texts


@given(st.text(max_size=200), st.floats(40, 400), st.integers(1, 4))
def test_wrapped_lines_fit(text: str, most: float, lines: int) -> None:
    made = wrapped(text, 12, most, lines)
    assert len(made) <= lines
    assert all(width(line, 12) <= most for line in made if len(line) > 1)
    if not made[-1].endswith("…"):
        assert "".join("".join(made).split()) == "".join(text.split())


def test_a_long_word_is_broken_and_a_long_text_cut() -> None:
    assert wrapped("abc", 12, 200) == ["abc"]
    assert wrapped("x" * 60, 12, 180) == ["x" * 28, "x" * 28, "x" * 4]
    assert wrapped("one two three", 12, 45, 2) == ["one two", "three"]
    assert wrapped("one two three four five", 12, 45, 2) == ["one two", "three…"]


def test_wide_characters_take_their_room() -> None:
    assert width("漢字", 10) > 2 * width("ab", 10)
    assert width("e\u0301", 10) == width("e", 10)


def test_a_block_counts_its_lines_and_numbers_them() -> None:
    made = block((Item("a default"), Item("unsure", None, sure=False)), MAIN)
    assert [line.text for line in made.lines] == ["a default", "unsure (?)"]
    assert made.gutter == 0
    assert made.height == 32
