"""The corpus of broken policies: exact output, every code, the rules of wording, and fixes that fix."""

from __future__ import annotations

import re
from pathlib import Path

import diagnostics_corpus as corpus
import pytest

from policy_lang import checks
from policy_lang.catalogue import page, pages
from policy_lang.diagnostics import Diagnostic, Edit
from policy_lang.rules import RULES

ELSEWHERE = {"P403", "P407", "P409", "P410"}
"""Codes whose case is made in a test: a file of a megabyte or seventeen files in a chain are no corpus, settings no
policy. Those of rules have the example of their page."""


@pytest.mark.parametrize("name", corpus.names())
def test_a_case_is_rendered_exactly(name: str) -> None:
    assert corpus.rendered(name) == corpus.expected(name)


SEEDED = {
    "many_at_once": 16,
    "many_travel": 19,
    "many_yaml": 16,
    "many_failures": 16,
    "many_tools": 16,
    "many_agents": 17,
    "many_claims": 16,
}
"""Files of somebody who is new to the language, and how many mistakes were made in each."""


@pytest.mark.parametrize("name", SEEDED)
def test_all_mistakes_of_a_file_are_told_at_once(name: str) -> None:
    errors = [finding for finding in corpus.findings(name) if finding.is_error]
    assert len(errors) == SEEDED[name]
    places = [(finding.primary.span.start, finding.primary.span.end) for finding in errors]
    assert len(set(places)) == len(places), "two errors at one place are one mistake told twice"


def test_every_expected_output_has_its_case() -> None:
    assert sorted(path.stem for path in corpus.CASES.glob("*.txt")) == corpus.names()


def _codes_in_source() -> set[str]:
    root = Path(corpus.__file__).parents[2] / "policy_lang"
    texts = (path.read_text(encoding="utf-8") for path in root.rglob("*.py") if "catalogue" not in path.parts)
    return {code for text in texts for code in re.findall(r'"(P[0-9]{3})"', text)}


def test_every_code_has_a_case_and_a_page() -> None:
    codes = _codes_in_source()
    shown = {finding.code for name in corpus.names() for finding in corpus.findings(name)}
    shown |= {rule.code for rule in RULES}
    assert codes - ELSEWHERE <= shown, "a code without a case"
    assert codes == set(pages()), "a code without a page, or a page without a code"


def test_a_page_is_found_by_its_code() -> None:
    assert page("p330") == page("P330")
    assert "reserve" in (page("P330") or "")
    assert page("P999") is None


def _all() -> list[tuple[str, Diagnostic]]:
    return [(name, finding) for name in corpus.names() for finding in corpus.findings(name)]


def test_wording() -> None:
    for name, finding in _all():
        parts = [finding.message, finding.help, finding.primary.text, *(label.text for label in finding.secondary)]
        for text in filter(None, parts):
            assert "\n" not in text, (name, text)
            assert not text.endswith((".", "!")), (name, text)
            assert text[0].islower() or not text[0].isalpha(), (name, text)
            assert not re.search(r"\b(None|str|int|dict|Token|NAME|QUANTITY|STRING|_NL|_LB)\b", text), (name, text)
            assert text.count("`") % 2 == 0, (name, text)
        assert finding.message, name


def test_at_most_five_things_are_expected() -> None:
    for name, finding in _all():
        if finding.primary.text.startswith("expected "):
            items = re.sub(r"`[^`]*`", "x", finding.primary.text).replace(" or ", ", ").split(", ")
            assert len(items) <= 5, (name, finding.primary.text)


def apply(text: str, edits: tuple[Edit, ...]) -> str:
    """The text with edits made, from the last to the first so that offsets stay right."""
    for edit in sorted(edits, key=lambda edit: edit.span.start, reverse=True):
        text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    return text


@pytest.mark.parametrize("name", corpus.names())
def test_a_fix_makes_its_finding_go_away(name: str) -> None:
    root = corpus.CASES
    for finding in corpus.findings(name):
        if not finding.fix or any(edit.span.source is not finding.primary.span.source for edit in finding.fix):
            continue
        source = finding.primary.span.source
        if source.name != f"{name}.policy":
            continue
        params, clients = corpus.PARAMS.get(name), corpus.CLIENTS.get(name)
        before = checks(source.text, source.name, root=root, params=params, clients=clients)[1]
        fixed = apply(source.text, finding.fix)
        after = checks(fixed, source.name, root=root, params=params, clients=clients)[1]
        same = (finding.code, finding.message)
        count = [(f.code, f.message) for f in before].count(same), [(f.code, f.message) for f in after].count(same)
        # Of steps that are never reached only the first is told; with that one gone it is the next.
        shorter = all(not edit.replacement for edit in finding.fix)
        assert shorter or count[1] < count[0], (name, finding.code, finding.message, finding.fix)
