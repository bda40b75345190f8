"""Lints the examples of pages, and renders what is found.

Run this file to write the expected outputs in ``rules/`` anew after a change of wording; then read every changed one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from policy_lang import catalogue
from policy_lang.diagnostics import Diagnostic
from policy_lang.linting import Linter
from policy_lang.renderers import full
from policy_lang.rules import RULES

EXPECTED = Path(__file__).parent / "rules"


def lint_example(files: dict[str, str], folder: Path, code: str = "") -> list[Diagnostic]:
    """The findings of ``main.policy``, with the other files beside it; their names are relative to the folder.

    All states are visited only for the code that needs it.
    """
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        return Linter(seconds=20.0 if code == "P331" else None)("main.policy")
    finally:
        os.chdir(before)


def rendered(code: str, folder: Path) -> str:
    """What is said about the bad example of a page."""
    files = (catalogue.find(code) or catalogue.Page("", "")).example("Bad")
    return f"{full.render(lint_example(files, folder, code))}\n"


def update() -> None:
    EXPECTED.mkdir(exist_ok=True)
    for rule in RULES:
        with tempfile.TemporaryDirectory() as folder:
            (EXPECTED / f"{rule.code}.txt").write_text(rendered(rule.code, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(update())
