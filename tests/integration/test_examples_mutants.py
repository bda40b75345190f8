"""The tests of the examples pin their numbers: whichever is changed by one, a test fails.

So a limit that somebody changes by mistake is noticed, and the examples show how few tests that takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run

FOLDERS = ("call_limits", "error_control", "budgets")
FREE = {"tokens": {"500 -> 499", "500 -> 501"}}
"""Numbers that are to change nothing: an agent that is promised more than there is gets what there is."""
EXAMPLES = [
    path
    for folder in FOLDERS
    for path in sorted((Path(__file__).parents[2] / "spec_examples" / folder).glob("*.policy"))
]
NUMBER = re.compile(r"(?<![\w.$])[0-9]+(?=(?:ms|s|m|k|%)?\b)")
UNREAD = re.compile(r'#.*|".*?"|lang 1')


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """The policy with one number one smaller or larger, and what was changed; its tests stay as they are."""
    start = text.index('\ntest "')
    rules = UNREAD.sub(lambda match: " " * len(match[0]), text[:start])
    for match in NUMBER.finditer(rules):
        for value in (int(match[0]) - 1, int(match[0]) + 1):
            if value >= 0:
                line = text.count("\n", 0, match.start()) + 1
                changed = text[: match.start()] + str(value) + text[match.end() :]
                yield changed, f"line {line}: {match[0]} -> {value}"


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_every_number_is_pinned(example: Path, tmp_path: Path) -> None:
    path = tmp_path / example.name
    survivors = []
    for text, change in mutants(example.read_text(encoding="utf-8")):
        path.write_text(text, encoding="utf-8")
        suite = load(str(path))
        if suite.errors:
            continue  # it does not even load
        compiled = suite.compiled()
        unnoticed = all(run(compiled, case).failure is None for case in suite.cases)
        if unnoticed and change.partition(": ")[2] not in FREE.get(example.stem, ()):
            survivors.append(change)
    assert survivors == []


def test_there_are_numbers_to_change() -> None:
    changes = [change for path in EXAMPLES for _, change in mutants(path.read_text(encoding="utf-8"))]
    assert len(changes) >= 100
