"""Laws of the formatter: one layout for one policy, nothing said is changed, what is broken is left alone."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lang_policies import Writer, policies
from layouts import commented, comments, relaid, words
from test_lang_recovery import KINDS, WORDS

from engine.core.policy import Policy
from policy_lang import checks
from policy_lang.diagnostics import Diagnostic
from policy_lang.formatting import Formatted, format_source, formatted
from policy_lang.formatting.columns import WIDTH
from policy_lang.source import Source
from policy_lang.width import width

SEEDS = st.integers(0, 2**32)
EVERYTHING = (Path(__file__).parent / "lang_everything.policy").read_text(encoding="utf-8")
CLEAN = (Path(__file__).parents[1] / "diagnostics" / "cases" / "clean.policy").read_text(encoding="utf-8")
SAMPLE = (Path(__file__).parents[2] / "benchmarks" / "sample.policy").read_text(encoding="utf-8")
TEXTS = {"everything": EVERYTHING, "clean": CLEAN, "sample": SAMPLE}

SPOILERS = (
    "  ",
    "\t",
    "\n",
    "\n\n",
    " # c\n",
    "\r\n",
    "# x",
    "{",
    "}",
    "\n}\n",
    "then ",
    "\n  then ",
    '"',
    "日",
    "\ufeff",
)


def shown(findings: list[Diagnostic]) -> list[Any]:
    """Findings without their places, and so without their order and their edits."""
    return sorted(
        (f.severity, f.code, f.message, f.help, [label.text for label in (f.primary, *f.secondary)]) for f in findings
    )


def layout(text: str) -> Formatted:
    return format_source(Source("x", text))


def said(text: str) -> list[str]:
    """Every word of a text; the options of a limit may change places."""
    return sorted(token.text for token in words(text))


# ---- files without syntax errors


@given(policies(), SEEDS, SEEDS)
def test_what_a_policy_means_is_kept(policy: Policy, seed: int, other: int) -> None:
    text = relaid(Writer(random.Random(seed)).write(policy), random.Random(other))
    made = formatted(text)
    (data, findings), (_, found_before) = checks(made), checks(text)
    assert Policy.model_validate(data).fingerprint() == policy.fingerprint()
    assert shown(findings) == shown(found_before)
    assert said(made) == said(text)
    assert comments(made) == comments(text)


@given(policies(), SEEDS, SEEDS)
def test_one_policy_has_one_layout(policy: Policy, seed: int, other: int) -> None:
    """However the white space was before, the text is the same after it. So a formatted text stays as it is."""
    made = formatted(Writer(random.Random(seed)).write(policy).replace("\r\n", "\n"))
    again = relaid(made, random.Random(other))
    assert formatted(again).replace("\r\n", "\n") == made, again
    assert formatted(made) == made


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_examples_have_one_layout(text: str) -> None:
    made = formatted(text)
    for seed in range(30):
        again = relaid(made, random.Random(seed))
        assert formatted(again).replace("\r\n", "\n") == made, again


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_comments_may_stand_anywhere(text: str) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        with_comments = commented(
            relaid(formatted(text), rng).replace("\r\n", "\n"), rng, share=rng.choice([0.1, 0.5, 1])
        )
        made = layout(with_comments)
        assert made.left == ()
        assert comments(made.text) == comments(with_comments)
        assert formatted(made.text) == made.text
        assert shown(checks(made.text)[1]) == shown(checks(with_comments)[1])


@given(st.sampled_from(sorted(TEXTS)), SEEDS)
def test_a_comment_stays_with_its_words(name: str, seed: int) -> None:
    """A comment keeps the word before it on its line and the word behind it, or its line of its own."""
    rng = random.Random(seed)
    text = commented(formatted(TEXTS[name]), rng, share=0.4)
    assert _places(formatted(text)) == _places(text)


def _places(text: str) -> list[tuple[str, bool, str]]:
    """Each comment, whether something stands before it on its line, and how many words of which text come before it.

    The words are counted by line of a statement, as a limit's options may change places.
    """
    found, before, end = [], 0, 0
    for token in [*words(text), None]:
        stop = token.start if token else len(text)
        for number, line in enumerate(text[end:stop].split("\n")):
            if line.strip():
                found.append((line.strip(), number == 0 and end > 0, str(before)))
        before, end = before + 1, token.end if token else end
    return found


@given(policies(), SEEDS)
def test_it_looks_the_same_everywhere(policy: Policy, seed: int) -> None:
    made = formatted(Writer(random.Random(seed)).write(policy).replace("\r\n", "\n"))
    lines = made.split("\n")
    assert lines[-1] == ""
    assert lines[0]
    assert lines[-2]
    for line, after in pairwise(lines):
        assert line == line.rstrip(" \t")
        assert line or after, "two blank lines"
        assert not (line.endswith("{") and not after)
        assert not (not line and after == "}")
        assert len(line) - len(line.lstrip(" ")) in (0, 2) or line.lstrip(" ").startswith(("then ", "#"))
        tokens = words(line)
        if tokens and width(line[: tokens[-1].end]) > WIDTH:
            steps = [token.text for token in tokens].count("then") + (tokens[0].text == "on")
            assert steps <= 1, "a ladder that could be broken"


def test_a_byte_order_mark_stays() -> None:
    assert formatted('\ufeffpolicy   "x" lang 1') == '\ufeffpolicy "x" lang 1\n'


# ---- files with mistakes


def untouched(text: str, made: Formatted) -> None:
    """Every line that was not understood is there, to the byte, in its place among the others."""
    lines, out, at = text.split("\n"), f"\n{made.text}\n", 0
    for first, last in made.left:
        found = out.find("\n" + "\n".join(lines[first - 1 : last]) + "\n", at)
        assert found >= 0, (first, last)
        at = found + 1


@given(st.sampled_from(sorted(TEXTS)), st.integers(1, 5), SEEDS)
def test_what_is_broken_is_left_alone(name: str, mistakes: int, seed: int) -> None:
    rng = random.Random(seed)
    text = relaid(TEXTS[name], rng) if rng.random() < 0.5 else TEXTS[name]
    for _ in range(mistakes):
        if rng.random() < 0.6 and len(text) > 40:
            text = rng.choice(KINDS)(text, rng)
        else:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(SPOILERS) + text[at:]
    made = layout(text)
    assert formatted(made.text) == made.text
    untouched(text, made)
    assert said(made.text) == said(text)
    assert shown(checks(made.text, "x")[1]) == shown(checks(text, "x")[1])


def test_a_mistake_does_not_spare_the_rest() -> None:
    """In one file with one mistake, all but the statement or block that holds it is laid out."""
    rng = random.Random(7)
    spared = 0
    for _ in range(150):
        text = rng.choice(KINDS[:-1])(CLEAN, rng) + "\nat   80% of    wall warn\n"
        spared += "at 80% of wall  warn" not in formatted(text)
    assert spared <= 8, spared


@given(st.lists(WORDS, max_size=60).map(" ".join))
def test_any_words_in_any_order(text: str) -> None:
    made = layout(text)
    assert formatted(made.text) == made.text
    untouched(text, made)
    assert said(made.text) == said(text)
    assert shown(checks(made.text, "x")[1]) == shown(checks(text, "x")[1])


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    made = formatted(text)
    assert formatted(made) == made
    assert said(made) == said(text)
