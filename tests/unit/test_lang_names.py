"""The nearest name: typos are forgiven, guesses are not made, and no set's order shows."""

from __future__ import annotations

import pytest

from engine.core.vocabulary import REASONS, RESOURCES
from policy_lang.names import distance, nearest, quoted


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("llm_cals", "llm_calls"),
        ("llm-calls", "llm_calls"),
        ("LLM_CALLS", "llm_calls"),
        ("llm_call", "llm_calls"),
        ("calls_llm", "llm_calls"),
        ("token", "tokens"),
        ("toknes", "tokens"),
        ("tokens_input", "input_tokens"),
        ("wal", "wall"),
        ("iterations", None),
        ("steps", None),
        ("x", None),
        ("", None),
    ],
)
def test_resources(word: str, near: str | None) -> None:
    assert nearest(word, RESOURCES) == near


def test_a_tie_is_settled_by_the_alphabet() -> None:
    assert nearest("cat", ["bat", "rat"]) == nearest("cat", ["rat", "bat"]) == "bat"


def test_a_beginning_is_enough_if_it_fits_one_only() -> None:
    assert nearest("context", REASONS) == "context_exceeded"
    assert nearest("tool_", ["tool_calls", "tool_iterations"]) is None


def test_distance_counts_a_swap_once_and_stops_early() -> None:
    assert distance("ab", "ba", 3) == 1
    assert distance("kitten", "sitting", 5) == 3
    assert distance("a" * 1_000, "b" * 1_000, 2) == 3


def test_lists_read_as_sentences() -> None:
    assert quoted(["a"]) == "`a`"
    assert quoted(["a", "b", "c"]) == "`a`, `b` or `c`"
