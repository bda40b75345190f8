"""docs/glossary.md: a sentence for each word, in order; its words are used, and those of the semantics are in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    (word, text) for word, text in re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", PAGE, re.MULTILINE) if "---" not in word
]
WORDS = [name.strip() for word, _ in ROWS[1:] for name in word.split(",")]


def _used() -> str:
    """The documentation without the glossary, and the code."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "glossary.md"]
    code = [path for folder in ("policy_lang", "engine") for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *pages, *code)).lower()


USED = _used()


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_used(word: str) -> None:
    assert re.search(rf"\b{re.escape(word.lower())}(s|es|ed)?\b", USED), word


def test_words_stand_in_order_each_once() -> None:
    assert sorted(WORDS, key=str.lower) == WORDS
    assert len(set(WORDS)) == len(WORDS)


def test_each_has_one_sentence() -> None:
    for word, text in ROWS[1:]:
        assert not text.endswith("."), word
        assert ". " not in text, word


def test_the_words_that_the_semantics_begin_with_are_in_it() -> None:
    section = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8").split("## 1. Words")[1].split("\n## ")[0]
    told = [word for word, _ in re.findall(r"^\| ([a-z ]+?) \| ([^|]+?) \|$", section, re.MULTILINE) if word != "word"]
    assert len(told) > 8
    assert [word for word in told if word not in WORDS and word != "admit"] == []
    assert "admission" in WORDS
