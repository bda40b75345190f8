"""Laws of argument keys, against an independent reading of the same JSON."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.core import canonical
from engine.core.canonical import arguments_key


def halves_joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


characters = st.characters() | st.sampled_from("\ud83d\ude00")
names = st.text(characters, max_size=3).map(halves_joined)
numbers = st.one_of(
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=False, allow_infinity=False),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(characters, max_size=5))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=5)


def spelled(value: Any, rng: random.Random) -> str:
    """One of the many texts of a JSON value."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        inside = ",".join(f"{blank(rng)}{string(k, rng)}{blank(rng)}:{spelled(v, rng)}" for k, v in items)
        return f"{{{inside}{blank(rng)}}}"
    if isinstance(value, list):
        return "[" + ",".join(blank(rng) + spelled(v, rng) for v in value) + blank(rng) + "]"
    if isinstance(value, str):
        return string(value, rng)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return number(value, rng)


def blank(rng: random.Random) -> str:
    return rng.choice(["", "", " ", "\n\t", "\r "])


def string(text: str, rng: random.Random) -> str:
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def number(value: int | float, rng: random.Random) -> str:
    text = repr(value)
    kind = rng.randrange(4)
    if kind == 0 and isinstance(value, int):
        return f"{text}.{'0' * rng.randrange(1, 4)}"
    if kind == 1 and isinstance(value, int):
        return f"{text}{'0' * 3}{rng.choice('eE')}-0{3}"
    if kind == 2 and "e" not in text:
        return f"{text}{'' if '.' in text else '.0'}{rng.choice(['e0', 'E+0', 'e-00'])}"
    return text


def meaning(value: Any) -> Any:
    """A value as Python compares it: exact numbers, booleans apart from them, names in no order."""
    if isinstance(value, dict):
        return ("object", frozenset((halves_joined(k), meaning(v)) for k, v in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(meaning, value)))
    if isinstance(value, str):
        return ("string", halves_joined(value))
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    # The shortest text that a float has is the number a model would write.
    return ("number", Fraction(repr(value)))


@given(objects, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_all_texts_of_a_value_have_one_key(value: dict[str, Any], one: random.Random, other: random.Random) -> None:
    assert arguments_key(spelled(value, one)) == arguments_key(spelled(value, other)) != ""


@given(objects, objects)
def test_keys_are_equal_only_for_equal_values(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = meaning(one) == meaning(other)
    assert (arguments_key(json.dumps(one)) == arguments_key(json.dumps(other))) == same


@given(objects, st.randoms(use_true_random=False))
def test_the_fast_way_and_the_patient_way_agree(value: dict[str, Any], rng: random.Random) -> None:
    text = spelled(value, rng)
    assert arguments_key(text) == canonical._key(canonical._parse(text))


@given(st.text(max_size=20) | st.text('{}[],:"\\ue0123456789.-+ntrfalsu \n', max_size=20))
def test_any_text_has_a_key_exactly_if_it_is_a_json_object(text: str) -> None:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        value = json.loads(text, parse_constant=refuse) if text.strip(" \t\n\r") else None
        expected = value is None or isinstance(value, dict)
    except ValueError:
        expected = False
    assert (arguments_key(text) != "") == expected
