"""Pages about codes: every code has one, every page its examples, and the examples are what they say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from linted import EXPECTED, lint_example, rendered

from policy_lang import catalogue
from policy_lang.diagnostics import NOTE
from policy_lang.formatting import formatted
from policy_lang.rules import RULES

PAGES = catalogue.pages()

UNSHOWN = {
    "P115": "two hundred errors",
    "P212": "what a host sets",
    "P403": "a megabyte",
    "P404": "bytes that are no text",
    "P407": "seventeen files",
}
"""Codes that no short example can have."""

RULE_PAGES = [rule.code for rule in RULES]


@pytest.mark.parametrize("code", sorted(set(PAGES) - set(UNSHOWN)))
@pytest.mark.parametrize("kind", ["Bad", "Good"])
def test_an_example_has_the_findings_it_is_for(code: str, kind: str, tmp_path: Path) -> None:
    files = PAGES[code].example(kind)
    assert files, f"the page of {code} has no {kind.lower()} example"
    found = lint_example(files, tmp_path, code)
    codes = {finding.code for finding in found if finding.code == code or finding.severity != NOTE}
    assert codes == ({code} if kind == "Bad" else set()), found


@pytest.mark.parametrize("code", sorted(set(PAGES) - set(UNSHOWN)))
@pytest.mark.parametrize("kind", ["Bad", "Good"])
def test_an_example_has_the_one_layout(code: str, kind: str) -> None:
    for name, text in PAGES[code].example(kind).items():
        assert not name.endswith(".policy") or formatted(text) == text


@pytest.mark.parametrize("code", sorted(UNSHOWN))
def test_what_no_example_can_show_has_none(code: str) -> None:
    assert not PAGES[code].example("Bad")


@pytest.mark.parametrize("code", RULE_PAGES)
def test_a_rule_says_why_and_what_its_fix_does(code: str) -> None:
    text = PAGES[code].text
    assert "\nWhy: " in text
    assert re.search(r"^Fix: (none; |safe: |unsafe: |safe or unsafe: )", text, re.MULTILINE), code


@pytest.mark.parametrize("code", RULE_PAGES)
def test_a_fix_does_what_its_page_promises(code: str, tmp_path: Path) -> None:
    """``none`` has no edits; another has, and the fixed example has the finding no more."""
    files = PAGES[code].example("Bad")
    finding = next(f for f in lint_example(files, tmp_path, code) if f.code == code)
    assert bool(finding.fix) is ("\nFix: none; " not in PAGES[code].text)
    if finding.fix:
        text = finding.primary.span.source.text
        for edit in sorted(finding.fix, key=lambda edit: edit.span.start, reverse=True):
            text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
        after = lint_example({**files, "main.policy": text}, tmp_path)
        assert code not in {f.code for f in after}


@pytest.mark.parametrize("code", RULE_PAGES)
def test_a_rule_is_rendered_exactly(code: str, tmp_path: Path) -> None:
    assert rendered(code, tmp_path) == (EXPECTED / f"{code}.txt").read_text(encoding="utf-8")


def test_every_rendering_has_its_rule() -> None:
    assert sorted(path.stem for path in EXPECTED.glob("*")) == RULE_PAGES


def test_every_rule_is_a_file_and_every_file_a_rule() -> None:
    folder = Path(catalogue.__file__).parents[1] / "rules"
    files = {name.removesuffix(".py") for name in os.listdir(folder) if name.startswith("p")}
    assert files == {rule.module for rule in RULES}
    assert [rule.code for rule in RULES] == sorted({rule.code for rule in RULES})
    for rule in RULES:
        assert rule.module.startswith(rule.code.lower() + "_")


def test_titles_are_a_few_words() -> None:
    for code, page in PAGES.items():
        assert page.title, code
        assert len(page.title) <= 60, code
        assert not page.title.endswith("."), code
        assert page.title[0].islower() or page.title[0] == "`", code
        assert max(map(len, page.text.splitlines())) <= 120, code
