"""What ``policy test`` says of tests that fail, to the letter.

A case is ``failures/NAME.policy`` with its exact output in ``failures/NAME.txt``. Run this file to write the outputs
anew after a change of wording; then read every changed one as the author of the test would.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy_lang.cases import Expectation
from policy_lang.cli import main
from policy_lang.testing.expecting import _JUDGE
from policy_lang.testing.loading import load
from policy_lang.testing.outcome import run

CASES = Path(__file__).parent / "failures"
NAMES = sorted(path.stem for path in CASES.glob("*.policy"))


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """In the directory of the cases, so that no path of this machine shows."""
    before = os.getcwd()
    os.chdir(CASES)
    try:
        yield
    finally:
        os.chdir(before)


def rendered(name: str) -> str:
    out = io.StringIO()
    with inside(), contextlib.redirect_stdout(out):
        assert main(["test", f"{name}.policy"]) == 1
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_failures_are_told_exactly(name: str) -> None:
    assert rendered(name) == (CASES / f"{name}.txt").read_text(encoding="utf-8")


def test_every_test_of_these_files_fails() -> None:
    with inside():
        for name in NAMES:
            suite = load(f"{name}.policy")
            compiled = suite.compiled()
            for case in suite.cases:
                assert run(compiled, case).failure is not None, case.name


def test_every_expectation_is_seen_to_fail() -> None:
    """An expectation that never fails would be a test that cannot fail."""
    missed: set[str] = set()
    with inside():
        for name in NAMES:
            suite = load(f"{name}.policy")
            compiled = suite.compiled()
            for case in suite.cases:
                failure = run(compiled, case).failure
                missed |= {
                    line.kind
                    for line in case.lines
                    if isinstance(line, Expectation) and failure is not None and line.span == failure.span
                }
    assert missed == set(_JUDGE)


if __name__ == "__main__":
    for each in NAMES:
        (CASES / f"{each}.txt").write_text(rendered(each), encoding="utf-8")
