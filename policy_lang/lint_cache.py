"""Remembers what was found in files, so that unchanged ones need not be looked at again.

An entry holds for a file only while all files that were read for it, the settings, the options and this program are the
same. The whole memory is one file in a directory of its own; one that cannot be read is as good as none, and one that
cannot be written is done without.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from policy_lang.diagnostics import Diagnostic, Edit, Label
from policy_lang.source import Source, Span, Unreadable, decode

DIRECTORY: Final = ".policy_cache"

_FORMAT: Final = 2

_ABOUT_FILES: Final = ("P401", "P402", "P403", "P404", "P405", "P406", "P407")
"""Findings that depend on more than the contents of what was read: on what there is, or where a link leads."""


class Cache:
    """What earlier runs have found. ``get`` and ``put`` take a key that tells how a file was looked at."""

    def __init__(self, directory: str = DIRECTORY) -> None:
        self._directory = directory
        self._file = os.path.join(directory, "findings.json")
        self._program = _program()
        self._entries = self._load()
        self._changed = False

    def get(self, path: str, key: str) -> list[Diagnostic] | None:
        """What was found in a file, if nothing has changed since."""
        entry = self._entries.get(path)
        try:
            if entry is None:
                return None
            digest, sources = _digest(key, entry["read"])
            return [_finding(made, sources) for made in entry["found"]] if digest == entry["digest"] else None
        except (OSError, Unreadable, LookupError, TypeError, ValueError, AttributeError):
            return None

    def put(self, path: str, key: str, read: Sequence[str], found: Sequence[Diagnostic]) -> None:
        """Remember what was found in a file, and which files were read for it, by the names that findings have."""
        self._changed = True
        self._entries.pop(path, None)
        if not read or any(finding.code in _ABOUT_FILES for finding in found):
            return
        with contextlib.suppress(OSError, Unreadable, ValueError):
            digest, _ = _digest(key, read)
            self._entries[path] = {"read": list(read), "digest": digest, "found": [_made(f, read) for f in found]}

    def save(self) -> None:
        """Write what has changed, all of it or nothing; files that are gone are forgotten."""
        if not self._changed:
            return
        kept = {path: entry for path, entry in self._entries.items() if os.path.exists(path)}
        text = json.dumps({"format": _FORMAT, "program": self._program, "entries": kept})
        spare = f"{self._file}.{os.getpid()}"
        with contextlib.suppress(OSError):
            self._make_directory()
            with open(spare, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(spare, self._file)
            return
        with contextlib.suppress(OSError):
            os.unlink(spare)

    def _make_directory(self) -> None:
        if not os.path.isdir(self._directory):
            os.makedirs(self._directory)
            with open(os.path.join(self._directory, ".gitignore"), "w", encoding="utf-8") as file:
                file.write("*\n")

    def _load(self) -> dict[str, Any]:
        try:
            with open(self._file, encoding="utf-8") as file:
                data = json.load(file)
            same = data["format"] == _FORMAT and data["program"] == self._program
            entries = data["entries"] if same else {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return {}
        return entries if isinstance(entries, dict) else {}


def _program() -> str:
    """What tells one state of this program from another: its files' names, sizes and times."""
    here = os.path.dirname(os.path.abspath(__file__))
    return hashlib.blake2b(repr([sys.version, *sorted(_files(here))]).encode()).hexdigest()[:32]


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry.path)
        elif entry.name.endswith((".py", ".lark")):
            status = entry.stat()
            yield entry.path, status.st_size, status.st_mtime_ns


def _digest(key: str, read: Sequence[str]) -> tuple[str, list[Source]]:
    """What all that a finding depends on comes to, and the files that were read for it."""
    state = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16)
    sources = []
    for name in read:
        with open(name, "rb") as file:
            data = file.read()
        for part in (name, os.path.realpath(name)):
            state.update(b"\0" + part.encode("utf-8", "surrogatepass"))
        state.update(b"\0%d\0" % len(data) + data)
        sources.append(decode(data, name))
    return state.hexdigest(), sources


# ---- findings as JSON and back


def _made(finding: Diagnostic, read: Sequence[str]) -> list[Any]:
    def place(span: Span) -> list[int]:
        return [read.index(span.source.name), span.start, span.end]

    labels = [[*place(label.span), label.text] for label in (finding.primary, *finding.secondary)]
    edits = [[*place(edit.span), edit.replacement] for edit in finding.fix]
    return [finding.code, finding.severity, finding.message, finding.help, labels, edits, finding.safety]


def _finding(made: Any, sources: list[Source]) -> Diagnostic:
    code, severity, message, help, labels, edits, safety = made
    primary, *secondary = (Label(Span(sources[at], start, end), text) for at, start, end, text in labels)
    fix = tuple(Edit(Span(sources[at], start, end), text) for at, start, end, text in edits)
    return Diagnostic(code, message, primary, tuple(secondary), help, fix, severity, safety)
