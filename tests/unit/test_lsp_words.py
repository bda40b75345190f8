"""Every word of the language has its sentence, and there is none about a word that is gone."""

from __future__ import annotations

from engine.core.vocabulary import REASONS, RESOURCES, TREE_RESOURCES
from policy_lang.language_server import words
from policy_lang.tables import tables


def test_every_keyword_is_explained() -> None:
    assert set(words.KEYWORDS) == set(tables().keywords)


def test_every_resource_and_reason_is_explained() -> None:
    assert list(words.RESOURCES) == [*RESOURCES, *TREE_RESOURCES]
    assert list(words.REASONS) == list(REASONS)


def test_sentences_are_sentences() -> None:
    said = [*words.KEYWORDS.values(), *words.RESOURCES.values(), *words.REASONS.values(), *words.OTHERS.values()]
    assert [text for text in said if not (text[0].isupper() or text[0] == "`") or text[-1] not in ".`"] == []
