"""What ``policy fmt`` and ``policy fix`` share: which files they rewrite, and how a change is shown.

Knows paths, bytes and the terminal, nothing of what is in a policy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from policy_lang.cli.terminal import STDIN as STDIN
from policy_lang.cli.terminal import in_colour
from policy_lang.renderers.snippet import clean
from policy_lang.walking import policy_files

BOM = b"\xef\xbb\xbf"

_COLOURS = {"---": "1", "+++": "1", "@@": "36", "+": "32", "-": "31"}


def files_to_rewrite(paths: list[str], problems: list[str]) -> Iterator[str]:
    """The files named and those found in the directories named, each once, in an order that no disk decides.

    ``problems`` gets a sentence for each folder that cannot be searched.
    """
    seen: set[str] = set()
    for path in (found for named in paths for found in _found(named, problems)):
        place = os.path.realpath(path)
        if place not in seen:
            seen.add(place)
            yield path


def _found(named: str, problems: list[str]) -> Iterator[str]:
    if not os.path.isdir(named):
        yield named
        return

    def told(problem: OSError) -> None:
        problems.append(f"`{problem.filename}` cannot be searched: {(problem.strerror or '').lower()}")

    for path in policy_files(named, told):
        if not os.path.basename(path).startswith("."):
            yield os.path.normpath(path)


def print_diff(old: bytes, new: bytes, name: str) -> None:
    """A unified diff. To a terminal in colour and without signs that it would act on, else to the byte."""
    from difflib import unified_diff

    terminal, colour = sys.stdout.isatty(), in_colour()
    shown = []
    for line in unified_diff(_lines(old), _lines(new), name, name):
        text, newline, _ = line.partition("\n")
        text = clean(text) if terminal else text
        text = _painted(text) if colour else text
        shown.append(f"{text}\n" if newline else f"{text}\n\\ No newline at end of file\n")
    sys.stdout.flush()
    sys.stdout.buffer.write("".join(shown).encode("utf-8", "surrogateescape"))


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8").split("\n")
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])


def _painted(line: str) -> str:
    code = next((code for sign, code in _COLOURS.items() if line.startswith(sign)), None)
    return f"\x1b[{code}m{line}\x1b[0m" if code else line
