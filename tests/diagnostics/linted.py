"""Lints the example of a page in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from policy_lang import lint
from policy_lang.diagnostics import Diagnostic


def lint_example(files: dict[str, str], folder: Path) -> list[Diagnostic]:
    """The findings of ``main.policy``, with the other files beside it."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return lint(folder / "main.policy")
