"""Files with findings and their fixed twins: the corpus of broken policies, and the bad examples of all pages.

The twin of ``NAME`` is ``fixed/NAME.policy``, that with guesses ``fixed/NAME.unsafe.policy``; there is none where
nothing is fixed, and none of the second kind where guesses add nothing. Run this file to write all of them anew, then
read every changed one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import NamedTuple

import diagnostics_corpus as corpus

from policy_lang import catalogue
from policy_lang.diagnostics import Diagnostic
from policy_lang.fixing import Files, Fixer
from policy_lang.linting import Linter
from policy_lang.source import Unreadable

TWINS = Path(__file__).parent / "fixed"


class Fixed(NamedTuple):
    """What became of a file: its text before, after, and after fixing it again; what was found before, and whose
    fixes were made."""

    old: str
    new: str
    again: str
    found: list[Diagnostic]
    done: list[Diagnostic]
    refused: list[Diagnostic]


def names() -> list[str]:
    """The cases of the corpus, by name, and the codes whose page has a bad example."""
    return [*corpus.names(), *(code for code, page in catalogue.pages().items() if page.example("Bad"))]


@cache
def fixed(name: str, unsafe: bool) -> Fixed:
    """What becomes of a case, or of the bad example of a code."""
    with _folder_of(name) as file:
        linter = Linter(clients=corpus.CLIENTS.get(name), params=corpus.PARAMS.get(name))
        files = Files(linter)
        try:
            old, found = files.text(file), files.look(file).findings
        except Unreadable:
            return Fixed("", "", "", [], [], [])
        fixer = Fixer(files, [file], unsafe=unsafe)
        fixer.run()
        new = files.text(file)
        again = Files(linter, lambda _: new)
        Fixer(again, [file], unsafe=unsafe).run()
        return Fixed(old, new, again.text(file), found, fixer.done.get(file, []), [f for f, _ in fixer.refused])


class _folder_of:
    """Goes to where a file is, so that no path of this machine shows; gives its name there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> str:
        place = corpus.CASES
        if page := catalogue.find(self.name):
            self.made = tempfile.TemporaryDirectory()
            place = Path(self.made.name)
            for name, text in page.example("Bad").items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(text, encoding="utf-8")
        self.back = chdir(place)
        self.back.__enter__()
        return "main.policy" if page else f"{self.name}.policy"

    def __exit__(self, *why: object) -> None:
        self.back.__exit__(None, None, None)
        if self.made:
            self.made.cleanup()


def twins(name: str) -> Iterator[tuple[str, str]]:
    """The twins that a file has: their names and texts."""
    safe, unsafe = fixed(name, False), fixed(name, True)
    if safe.new != safe.old:
        yield f"{name}.policy", safe.new
    if unsafe.new != safe.new:
        yield f"{name}.unsafe.policy", unsafe.new


def update() -> None:
    TWINS.mkdir(exist_ok=True)
    for path in TWINS.iterdir():
        path.unlink()
    for name in names():
        for twin, text in twins(name):
            (TWINS / twin).write_bytes(text.encode())


if __name__ == "__main__":
    os.chdir(Path(__file__).parent)
    sys.exit(update())
