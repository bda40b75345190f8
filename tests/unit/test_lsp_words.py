"""Every word of the language has its sentence, and there is none about a word that is gone."""

from __future__ import annotations

from engine.core.vocabulary import DECISIONS, DEEDS, PHASES, REASONS, RESOURCES, TREE_RESOURCES
from policy_lang.language_server import words
from policy_lang.tables import tables


def test_every_keyword_is_explained() -> None:
    assert set(words.KEYWORDS) == set(tables().keywords)


def test_every_resource_and_reason_is_explained() -> None:
    assert list(words.RESOURCES) == [*RESOURCES, *TREE_RESOURCES]
    assert list(words.REASONS) == list(REASONS)


def test_every_word_of_a_claim_is_explained() -> None:
    assert tuple(words.PHASES) == PHASES
    assert tuple(words.DECISIONS) == DECISIONS
    assert tuple(words.DEEDS) == DEEDS


def test_sentences_are_sentences() -> None:
    tables = (words.KEYWORDS, words.RESOURCES, words.REASONS, words.OTHERS, words.PHASES, words.DECISIONS, words.DEEDS)
    said = [text for table in tables for text in table.values()]
    assert [text for text in said if not (text[0].isupper() or text[0] == "`") or text[-1] not in ".`"] == []
