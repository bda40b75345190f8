"""The colours that go by spelling: none of a policy's words is missed, and none drifts from the grammar."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers import find_lexer_class_for_filename, get_lexer_by_name
from pygments.token import Comment, Error, Keyword, Name, Number, String

from policy_lang.highlighting import PolicyLexer, textmate
from policy_lang.lexer import lex
from policy_lang.recovery.site import STATEMENTS
from policy_lang.tables import tables

ROOT = Path(__file__).parents[2]
GRAMMAR = ROOT / "grammars" / "policy.tmLanguage.json"
SHIPPED = sorted(
    path for folder in ("spec_examples", "benchmarks", "tests/laws") for path in (ROOT / folder).rglob("*.policy")
)
EVERYTHING = (ROOT / "tests" / "laws" / "lang_everything.policy").read_text(encoding="utf-8")


class TestPygments:
    @pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
    def test_no_word_of_a_shipped_policy_is_an_error(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        found = list(PolicyLexer().get_tokens_unprocessed(text))
        assert [value for _, kind, value in found if kind is Error] == []
        assert "".join(value for _, _, value in found) == text

    @given(st.text())
    def test_no_text_is_lost(self, text: str) -> None:
        assert "".join(value for _, _, value in PolicyLexer().get_tokens_unprocessed(text)) == text

    def test_words_have_the_kind_that_they_are(self) -> None:
        text = 'limits {\n  llm_calls 20 then finalize "{left} \\n left" # no {left}\n'
        text += "  override wall 5m per per-agent\n}\n"
        kinds = {value: kind for _, kind, value in PolicyLexer().get_tokens_unprocessed(text)}
        expected = {
            "limits": Keyword.Declaration, "llm_calls": Name.Builtin, "20": Number, "then": Keyword.Reserved,
            "{left}": String.Interpol, "\\n": String.Escape, "# no {left}": Comment.Single, "override": Keyword.Type,
            "5m": Number, "per": Keyword, "per-agent": Name,
        }  # fmt: skip
        assert {value: kinds[value] for value in expected} == expected

    def test_a_quote_that_is_not_closed_ends_with_its_line(self) -> None:
        found = list(PolicyLexer().get_tokens_unprocessed('tool "x\ntool "y" deny\n'))
        assert [value for _, kind, value in found if kind is Keyword.Declaration] == ["tool", "tool"]

    def test_pygments_finds_it_in_the_installed_package(self) -> None:
        assert type(get_lexer_by_name("policy")).__name__ == "PolicyLexer"
        assert find_lexer_class_for_filename("a.policy") is not None


def test_every_keyword_of_the_grammar_is_coloured_as_one() -> None:
    for word in tables().keywords:
        ((_, kind, value), *_) = PolicyLexer().get_tokens_unprocessed(f"{word} ")
        assert value == word
        assert kind in Keyword or kind in Name.Builtin, word  # `tokens` is a resource as well


def test_statements_are_those_of_the_grammar() -> None:
    first = re.findall(
        r'^\w+_?: +"(\w+)"', (ROOT / "grammars" / "policy.lark").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(first) >= set(STATEMENTS)


def test_the_grammar_of_textmate_is_as_its_script_writes_it() -> None:
    assert json.loads(GRAMMAR.read_text(encoding="utf-8")) == textmate()


# ---- the grammar of TextMate


def scopes(line: str) -> list[tuple[int, int, str]]:
    """The innermost scope of each stretch of a line, by the rules of TextMate: the earliest match wins, then the first
    pattern. No text of a policy goes on in the next line, so that each is a beginning."""
    found: list[tuple[int, int, str]] = []
    at = 0
    while at < len(line):
        pattern, match = _earliest(textmate()["patterns"], line, at)
        if pattern is None or match is None:
            break
        if "begin" in pattern:
            at = _text(pattern, line, match, found)
            continue
        start, end = match.span(1) if "captures" in pattern else match.span()
        scope = pattern["captures"]["1"]["name"] if "captures" in pattern else pattern["name"]
        found.append((start, end, scope))
        at = match.end()
    return found


def _earliest(patterns: list[dict[str, str]], line: str, at: int):  # type: ignore[no-untyped-def]
    best = (None, None)
    for pattern in patterns:
        match = re.compile(pattern.get("match") or pattern["begin"]).search(line, at)
        if match and match.group() and (best[1] is None or match.start() < best[1].start()):
            best = (pattern, match)
    return best


def _text(pattern, line: str, match, found: list[tuple[int, int, str]]) -> int:  # type: ignore[no-untyped-def]
    at, start = match.end(), match.start()
    while True:
        end = re.compile(pattern["end"]).search(line, at)
        assert end is not None
        inner, inside = _earliest(pattern["patterns"], line, at)
        if inside is None or end.start() <= inside.start():
            found.append((start, end.end(), pattern["name"]))
            return end.end()
        if inside.start() > start:
            found.append((start, inside.start(), pattern["name"]))
        found.append((inside.start(), inside.end(), inner["name"]))
        at = start = inside.end()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_textmate_sees_the_words_that_our_lexer_sees(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    seen = {start + first for start, line in zip(starts, text.split("\n"), strict=True) for first, _, _ in scopes(line)}
    assert [
        token.text
        for token in lex(text, tables())
        if token.text.strip() and token.start not in seen and token.kind != "_NL"
    ] == []


def test_textmate_colours_by_kind() -> None:
    line = '  llm_calls 20 then finalize "a {left}" # note'
    assert [(line[start:end], scope.removesuffix(".policy")) for start, end, scope in scopes(line)] == [
        ("llm_calls", "support.variable.resource"),
        ("20", "constant.numeric"),
        ("then", "keyword.other.step"),
        ("finalize", "keyword.other.step"),
        ('"a ', "string.quoted.double"),
        ("{left}", "variable.parameter.placeholder"),
        ('"', "string.quoted.double"),
        ("# note", "comment.line.number-sign"),
    ]


def test_the_tokenizer_of_vs_code_sees_the_same() -> None:
    folder = ROOT / "tests" / "textmate"
    node = shutil.which("node")
    if node is None or not (folder / "node_modules").is_dir():
        pytest.skip("the tokenizer of VS Code is not installed: npm install --prefix tests/textmate")
    command = [node, str(folder / "tokenize.cjs"), str(GRAMMAR), *map(str, SHIPPED)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    for path, lines in zip(SHIPPED, json.loads(done.stdout), strict=True):
        for line, told in zip(path.read_text(encoding="utf-8").split("\n"), lines, strict=True):
            theirs = [tuple(each) for each in told if each[2] != "source.policy" and each[0] < len(line)]
            assert _joined(theirs) == _joined(scopes(line)), (path.name, line)


def _joined(found: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Neighbours of one scope as one, as far as they touch."""
    made: list[tuple[int, int, str]] = []
    for start, end, scope in found:
        if made and made[-1][1] == start and made[-1][2] == scope:
            made[-1] = (made[-1][0], end, scope)
        else:
            made.append((start, end, scope))
    return made
