"""Laws of the language server's answers: none fails on any file at any place, and a renaming keeps the meaning."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lsp_editor import applied
from lsprotocol import types
from lsprotocol.converters import get_converter

from policy_lang import checks
from policy_lang.formatting import formatted
from policy_lang.language_server import (
    colours,
    completion,
    findings,
    fixes,
    hover,
    layout,
    navigation,
    outline,
    renaming,
    uses,
)
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.positions import Lines

TESTS = Path(__file__).parents[1]
EVERYTHING = (Path(__file__).parent / "lang_everything.policy").read_text(encoding="utf-8")
BROKEN = sorted((TESTS / "diagnostics" / "cases").glob("*.policy"))
FOLDER = Path(tempfile.gettempdir()) / "no such folder"
"""Where the documents would be if they were saved."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|[A-Za-z0-9_.$%-]+|\S|\n')
_TO_JSON = get_converter()


def analysis(text: str) -> Analysis:
    return Analysis(text, (FOLDER / "main.policy").as_uri())


def everything(document: Analysis, position: types.Position) -> Iterator[object]:
    """The answers to every request about a document and a place in it."""
    yield findings.diagnostics(document)
    yield fixes.actions(document, types.Range(position, position))
    yield hover.hover(document, position)
    yield completion.completions(document, position)
    yield navigation.definition(document, position)
    yield outline.symbols(document)
    yield outline.foldings(document)
    yield colours.tokens(document)
    yield layout.edits(document)
    yield renaming.references(document, position, str(FOLDER))
    try:
        yield renaming.rename(document, position, "another", str(FOLDER))
    except renaming.Refused as why:
        yield str(why)


def ask(text: str, positions: list[types.Position]) -> None:
    document = analysis(text)
    for position in positions:
        for answer in everything(document, position):
            json.dumps(_TO_JSON.unstructure(answer))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A file with tokens dropped, doubled, exchanged and cut, at some places."""
    text = EVERYTHING
    if draw(st.booleans()):
        text = draw(st.sampled_from(BROKEN)).read_text(encoding="utf-8", errors="replace")
    start = draw(st.integers(0, len(text)))
    text = text[start : start + draw(st.integers(1, 1_500))]
    for _ in range(draw(st.integers(0, 4))):
        tokens = list(_TOKEN.finditer(text))
        if not tokens:
            break
        at, other = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        inserted = draw(st.sampled_from(("", other.group(), '"', "{", "}", "𝒳", "\r", "\u2028", "\x01", "\ufeff", "#")))
        text = text[: at.start()] + inserted + text[at.end() :]
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


places = st.lists(st.builds(types.Position, st.integers(0, 80), st.integers(0, 90)), min_size=1, max_size=6)


@given(mutated(), places)
@example("", [types.Position(0, 0), types.Position(9, 9)])
@example("\ufeff", [types.Position(0, 1)])
@example("\0", [types.Position(0, 0)])
@example("\ud800", [types.Position(0, 1)])
def test_no_request_fails_on_a_broken_file(text: str, positions: list[types.Position]) -> None:
    ask(text, positions)


@given(st.text(max_size=60), places)
def test_no_request_fails_on_any_text(text: str, positions: list[types.Position]) -> None:
    ask(text, positions)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in BROKEN])
def test_no_request_fails_at_any_word_of_the_broken_files(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    lines = Lines(text)
    tokens = list(_TOKEN.finditer(text))
    ask(text, [lines.position(token.end()) for token in tokens[:: max(1, len(tokens) // 20)]])


@given(st.text(st.sampled_from("ab𝒳é\n\r\ufeff"), max_size=30), st.sampled_from(("utf-8", "utf-16", "utf-32")))
def test_places_go_there_and_back(text: str, encoding: str) -> None:
    lines = Lines(text, encoding)
    for offset in range(len(text) + 1):
        if text[offset - 1 : offset + 1] != "\r\n":  # between them there is no place
            assert lines.offset(lines.position(offset)) == offset


@given(mutated())
@settings(max_examples=60)
def test_formatting_in_the_editor_is_that_of_the_command(text: str) -> None:
    if "\x01" in text or "\u2028" in text or "\ufeff" in text or "\r" in text.replace("\r\n", ""):
        return  # these count as line ends for the test's own reckoning
    made = layout.edits(analysis(text))
    assert applied(text, made) == formatted(text)


CONSTANTS = """policy "constants" lang 1
param few = 5
param patience = 2m
let much = 20k
let pause = 1s
let share = 80%
let coins = $2.50
let goodbye = "Say what you have."
let no = "Not now."

limits {
  llm_calls     20
  tool_calls    few       then extend few once then ask up to few times few then stop
  tokens        much      reserve few then finalize goodbye
  cost          coins
  wall          patience
}
finalization {
  mode   reactive no
  empty  retry few
}
at share of tokens tell no
on llm_failure rate_limit  retry few every pause..patience then fallback few -> no for patience
on unknown_tool reply few then stop
breaker "*" {
  trip       failure_rate share of few
  trip       slow pause of few
  reset      after patience probe few
  when_open  skip no
}
tool "few" deny no
tool "b" limit few no timeout patience retry few every pause..patience
tool "c" ask within patience
agents {
  children  few
}
agent "few" {
  llm_calls  few
}
prices {
  "few" input coins cached coins output coins per much
}
test "few" {
  given   tool_calls few
  when    call times few
  when    model asks "few" tokens few
  when    model fails rate_limit retry_after pause tokens few
  when    extended few
  expect  retry in pause
  expect  count tokens = few
}
verify "a" always tokens <= much and phase is not ended
verify "b" at_most few finalize
verify "c" within few steps ended
"""
"""Constants wherever one may stand, and the same words where they stand for something else."""


def test_renaming_any_constant_keeps_the_meaning() -> None:
    """Each of them, renamed from each place where it stands: the same policy, and the same findings."""
    document = analysis(CONSTANTS)
    before, told = checks(CONSTANTS)
    assert before is not None, [finding.message for finding in told]
    known = {definition.name for definition in completion.definitions(document)}
    words = [word for word in uses.constants(document.file) if word.text in known]
    assert len(words) > 50
    for word in words:
        position = document.lines.position(word.span.start)
        (edits,) = (renaming.rename(document, position, "renamed_now", str(FOLDER)).changes or {}).values()
        after, now = checks(applied(CONSTANTS, list(edits)))
        assert after == before
        assert [(f.code, f.primary.span.line) for f in now] == [(f.code, f.primary.span.line) for f in told]


def test_every_constant_is_found_where_the_resolver_looks_one_up() -> None:
    """A word renamed at its definition alone is missed at every use, and nowhere else."""
    document = analysis(CONSTANTS)
    for definition in completion.definitions(document):
        span = definition.span
        text = CONSTANTS[: span.start] + "renamed_now" + CONSTANTS[span.end :]
        shift = len("renamed_now") - len(definition.name)
        missed = {f.primary.span.start - shift for f in checks(text)[1] if f.code in ("P203", "P201")}
        found = {word.span.start for word in uses.constants(document.file) if word.text == definition.name}
        assert missed == found - {span.start}
