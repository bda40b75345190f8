"""The syntax in docs/reference.md, read back: every sentence that it promises is one the parser takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from policy_lang import lint_settings
from policy_lang.parser import parse
from policy_lang.source import Source
from policy_lang.tables import tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^##+ ([^\n]+)\n\n```text\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE))

SAMPLES = {
    "QUANTITY": "20",
    "N": "3",
    "DURATION": "5m30s",
    "MONEY": "$2.50",
    "PERCENT": "80%",
    "TEXT": '"text"',
    '"TEXT"': '"text"',
    '"NAME"': '"name"',
    '"FILE"': '"base.policy"',
    '"PATTERN"': '"search_*"',
    '"TOOL"': '"search"',
    '"AGENT"': '"explore"',
    '"MODEL"': '"gpt-4.1"',
    '"KEY"': '"key"',
    "NAME": "name",
    "CLIENT": "small",
    "FUNCTION": "brief",
    "RESOURCE": "tokens",
    "SCOPE": "run",
    "REASON": "rate_limit",
    "COUNTER": "llm_calls",
    "DEED": "call",
    "WORD": "ended",
}
"""One of each thing that is filled in."""

TOKEN = re.compile(r'"[A-Z]+"|\]…|[\[\]()|]|…|\.\.|[A-Z]+(?![a-z0-9])…?|[a-z_]+|[<>=!]+|->|1M?|,')


class Notation:
    """One line of the notation, as the sentences it stands for: each choice made each way, not all with all."""

    def __init__(self, line: str, defined: dict[str, list[str]]) -> None:
        self.tokens = TOKEN.findall(line)
        assert "".join(self.tokens) == re.sub(r"\s", "", line), line
        self.defined, self.at = defined, 0

    def sentences(self) -> list[str]:
        found = self._choice()
        assert self.at == len(self.tokens), self.tokens[self.at :]
        return found

    def _choice(self) -> list[str]:
        found = self._row()
        while self._take("|"):
            found += self._row()
        return found

    def _row(self) -> list[str]:
        parts: list[list[str]] = []
        while self.at < len(self.tokens) and self.tokens[self.at] not in ("|", ")", "]", "]…"):
            parts.append(self._part())
        return list(dict.fromkeys(self._joined(parts)))

    def _joined(self, parts: list[list[str]]) -> Iterator[str]:
        if sum(len(part) - 1 for part in parts) <= 6:
            yield from (" ".join(filter(None, one)) for one in product(*parts))
            return
        for number, part in enumerate(parts):
            for option in part:
                yield " ".join(filter(None, (option if n == number else p[0] for n, p in enumerate(parts))))

    def _part(self) -> list[str]:
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            found = self._choice()
            assert self._take(")")
            return found
        if token == "[":
            found = self._choice()
            if self._take("]…"):
                return ["", *found, f"{found[0]} {found[-1]}"]
            assert self._take("]")
            return ["", *found]
        many = token.endswith("…")
        found = self._filled(token.removesuffix("…"))
        return [*found, f"{found[0]} {found[-1]}"] if many else found

    def _filled(self, word: str) -> list[str]:
        if word in self.defined:
            return [sentence for line in self.defined[word] for sentence in Notation(line, self.defined).sentences()]
        return [SAMPLES[word]] if word.strip('"').isupper() and not word.startswith("1") else [word]

    def _take(self, token: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at] == token:
            self.at += 1
            return True
        return False


def definitions(text: str) -> dict[str, list[str]]:
    """The parts that a section defines below its statement: ``OPTION  per SCOPE`` and the lines under it."""
    found: dict[str, list[str]] = {}
    for part in text.split("\n\n")[1:]:
        name = part.split("  ")[0]
        found[name] = [line[len(name) :].strip() for line in part.splitlines()]
    return found


DEFINED = {name: lines for text in SECTIONS.values() for name, lines in definitions(text).items()}
DEFINED["STEP"] = SECTIONS["Steps"].splitlines()


def written(title: str) -> Iterator[str]:
    """Every statement that the syntax of a section promises, as a file may have it."""
    own = SECTIONS[title].split("\n\n")[0]
    if "{\n" not in own:
        for line in own.splitlines():
            yield from Notation(line, DEFINED).sentences()
        return
    head, *lines, _ = own.splitlines()
    for first in Notation(head.removesuffix(" {"), DEFINED).sentences():
        yield f"{first} {{\n}}"
    for line in lines:
        for sentence in Notation(line.strip(), DEFINED).sentences():
            yield f"{first} {{\n  {sentence}\n}}"


STATEMENTS = [title for title in SECTIONS if title not in ("Steps", "Comments")]


@pytest.mark.parametrize("title", STATEMENTS)
def test_what_the_reference_promises_is_syntax(title: str) -> None:
    sentences = list(written(title))
    assert sentences
    for sentence in sentences:
        wrong = parse(Source("tried", f"{sentence}\n")).findings
        assert not wrong, f"{sentence}\n{wrong[0].code} {wrong[0].message}"


def test_the_syntax_is_read_as_it_is_meant() -> None:
    assert Notation("retry N [every DURATION..DURATION [jitter]]", {}).sentences() == [
        "retry 3",
        "retry 3 every 5m30s .. 5m30s",
        "retry 3 every 5m30s .. 5m30s jitter",
    ]
    assert Notation("x (a | b) [y]…", {}).sentences() == ["x a", "x a y", "x a y y", "x b", "x b y", "x b y y"]


def test_every_keyword_of_the_grammar_is_in_the_syntax_and_among_the_words() -> None:
    shown = set(re.findall(r"[a-z_]+", "\n".join(SECTIONS.values())))
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("## All words")[1], re.MULTILINE))
    assert set(tables().keywords) - {"unlimited"} <= shown  # which is one of the quantities
    assert set(tables().keywords) <= listed


def test_everything_that_is_filled_in_is_explained() -> None:
    table = PAGE.split("## What is filled in")[1].split("\n## ")[0]
    explained = set(re.findall(r'"?[A-Z]{2,}"?|\bN\b', "\n".join(re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE))))
    used = set(re.findall(r'"[A-Z]+"|\b[A-Z]+\b(?!")', "\n".join(SECTIONS.values()))) - {*DEFINED, "M", "CODE"}
    assert used == explained & used, used - explained


def test_the_settings_are_those_that_are_read() -> None:
    table = PAGE.split("The table `[lint]`")[1].split("\n\n")[1]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(lint_settings.KEYS)
