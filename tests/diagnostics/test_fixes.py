"""Fixes: exact twins of broken files, and a page for each code with a fix that says whether it is safe."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest
from fix_twins import TWINS, fixed, names, twins

import policy_lang
from policy_lang import catalogue

NAMES = names()
ELSEWHERE = {"P410"}
"""Codes whose fix is in a settings file: an editor offers it, `policy fix` changes policies only."""

CLAIMS = {"safe": {True}, "unsafe": {False}, "safe or unsafe": {True, False}}


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_is_exact(name: str) -> None:
    there = {path.name: path.read_bytes().decode() for path in TWINS.glob(f"{name}.*")}
    assert there == dict(twins(name))


def test_every_twin_has_its_file() -> None:
    assert {path.name.split(".")[0] for path in TWINS.iterdir()} <= set(NAMES)


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_fixing_again_changes_nothing(name: str, unsafe: bool) -> None:
    made = fixed(name, unsafe)
    assert made.again == made.new


@pytest.mark.parametrize("name", NAMES)
def test_no_safe_fix_is_refused(name: str) -> None:
    """A fix that is exactly what a message says and would make things worse is a mistake in the message."""
    assert fixed(name, False).refused == []


# ---- pages


def claim(code: str) -> str:
    """What the page of a code says of its fix: "safe", "unsafe", "safe or unsafe", "none" or nothing at all."""
    page = catalogue.find(code)
    found = re.search(r"^Fix: (none|safe|unsafe|safe or unsafe)[:;] ", page.text if page else "", re.MULTILINE)
    return found[1] if found else ""


def offered() -> dict[str, set[bool]]:
    """Every code with a fix, and whether those are safe."""
    known: dict[str, set[bool]] = defaultdict(set)
    for name in NAMES:
        for finding in fixed(name, True).found:
            if finding.fix:
                known[finding.code].add(finding.is_safe)
    return known


def test_every_code_with_a_fix_says_so_and_no_other_does() -> None:
    saying = {code for code in catalogue.pages() if claim(code) in CLAIMS}
    assert saying - ELSEWHERE == set(offered())


@pytest.mark.parametrize(("code", "safe"), sorted(offered().items()))
def test_a_page_says_whether_a_fix_is_safe(code: str, safe: set[bool]) -> None:
    assert CLAIMS[claim(code)] == safe


def test_every_code_with_a_fix_has_a_twin() -> None:
    made = {finding.code for name in NAMES for finding in fixed(name, True).done}
    assert made == set(offered())


def test_every_code_with_a_safe_fix_has_a_twin_without_guesses() -> None:
    made = {finding.code for name in NAMES for finding in fixed(name, False).done}
    assert made == {code for code, safe in offered().items() if True in safe}


def written() -> set[str]:
    """Codes that are reported with a fix somewhere in the source, as far as they are written there."""
    found = set()
    for path in Path(policy_lang.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and any(keyword.arg == "fix" for keyword in node.keywords):
                codes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                found |= {code for code in codes if re.fullmatch(r"P[0-9]{3}", code)}
    return found


def test_no_fix_in_the_source_is_without_an_example() -> None:
    assert len(written()) > 30
    assert written() - ELSEWHERE <= set(offered())
