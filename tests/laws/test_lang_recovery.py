"""Laws of the recovering parser: it never fails, never hangs, and one mistake gives one finding."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spent import spent

from policy_lang import checks
from policy_lang.parser import Parsed, parse
from policy_lang.renderers import full
from policy_lang.source import Source

EVERYTHING = (Path(__file__).parent / "lang_everything.policy").read_text(encoding="utf-8")
CLEAN = (Path(__file__).parents[1] / "diagnostics" / "cases" / "clean.policy").read_text(encoding="utf-8")
TEXTS = (EVERYTHING, CLEAN)

MUTATIONS = 3_000
SECONDS_PER_FILE = 30.0
"""A hundred times what a file of this size takes; a hang is for ever."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z0-9_.$%-]+|\S')
_CHARACTERS = "abz019 \"'{}#\n\t.,-=*$%\\é日"


def _drop_token(text: str, rng: random.Random) -> str:
    token = rng.choice(list(_TOKEN.finditer(text)))
    return text[: token.start()] + text[token.end() :]


def _insert_token(text: str, rng: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    at, other = rng.choice(tokens), rng.choice(tokens)
    return f"{text[: at.start()]}{other.group()} {text[at.start() :]}"


def _replace_token(text: str, rng: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    at, other = rng.choice(tokens), rng.choice(tokens)
    return text[: at.start()] + other.group() + text[at.end() :]


def _swap_tokens(text: str, rng: random.Random) -> str:
    tokens = list(_TOKEN.finditer(text))
    pairs = [(a, b) for a, b in pairwise(tokens) if "\n" not in text[a.end() : b.start()]]
    a, b = rng.choice(pairs)
    return text[: a.start()] + b.group() + text[a.end() : b.start()] + a.group() + text[b.end() :]


def _drop_character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + 1 :]


def _insert_character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(_CHARACTERS) + text[at:]


def _replace_character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice(_CHARACTERS) + text[at + 1 :]


def _drop_line(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    del lines[rng.randrange(len(lines))]
    return "\n".join(lines)


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


KINDS = (
    _drop_token,
    _insert_token,
    _replace_token,
    _swap_tokens,
    _drop_character,
    _insert_character,
    _replace_character,
    _drop_line,
    _cut,
)


@pytest.mark.parametrize("text", TEXTS, ids=["everything", "clean"])
def test_the_examples_are_right(text: str) -> None:
    assert parse(Source("x", text)).findings == []


def test_single_mistakes() -> None:
    """No crash, no hang, and of the mistakes that break the syntax at least nine in ten give exactly one finding."""
    rng = random.Random(20)
    found: Counter[int] = Counter()
    for _ in range(MUTATIONS):
        text = rng.choice(KINDS)(rng.choice(TEXTS), rng)
        made: list[Parsed] = []
        assert spent(lambda text=text, made=made: made.append(parse(Source("x", text)))) < SECONDS_PER_FILE, text
        (parsed,) = made
        assert parsed.file.statements or not re.sub("#.*", "", text).strip(), "the tree was lost"
        found[len(parsed.findings)] += 1
    broken = MUTATIONS - found[0]
    assert broken > MUTATIONS / 3, "the mutations hardly break anything"
    assert found[1] / broken >= 0.9, found


def test_several_mistakes_at_once() -> None:
    """Files with many mistakes are checked to the end and rendered."""
    rng = random.Random(21)
    for _ in range(300):
        text = rng.choice(TEXTS)
        for _ in range(rng.randrange(2, 9)):
            text = rng.choice(KINDS[:-1])(text, rng)
        data, findings = checks(text, "x.policy")
        assert full.render(findings) or data is not None


def test_a_mistake_hides_nothing_below_it() -> None:
    """A second mistake, in the last statement, is found whatever was broken above it."""
    rng = random.Random(22)
    missed = 0
    for _ in range(500):
        text = rng.choice(KINDS[:-1])(CLEAN, rng) + "\n\nat 80% of tokens  wran\n"
        findings = checks(text, "x.policy")[1]
        missed += not any("`wran`" in finding.message for finding in findings)
    assert missed <= 5, missed


_VOCABULARY = r"""
policy lang limits finalization at of on breaker tool agents agent prices test verify
then stop finalize retry extend once override locked per reserve llm_calls tokens wall x
5 5m $2 80% -1 unlimited { } = , .. -> * " "a" 'b' # \ é $ % ; == //
"""

WORDS = st.sampled_from([*_VOCABULARY.split(), "\n", "\n\n", "\n  ", "\t"])


@settings(max_examples=300, deadline=2_000)
@given(st.lists(WORDS, max_size=60).map(" ".join))
def test_any_words_in_any_order(text: str) -> None:
    data, findings = checks(text, "x.policy")
    assert (data is None) == any(finding.is_error for finding in findings)
    full.render(findings)


@settings(max_examples=300, deadline=2_000)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    data, findings = checks(text, "x.policy")
    assert (data is None) == any(finding.is_error for finding in findings)
    for finding in findings:
        for label in (finding.primary, *finding.secondary):
            assert 0 <= label.span.start <= label.span.end <= len(label.span.source.text)
    full.render(findings)
