"""Policy files that change under way: their texts as they have become, and what is found in each now.

Reads files, and writes none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cached_property

from policy_lang import source as disk
from policy_lang.checking import STRICT, findings_of
from policy_lang.diagnostics import Diagnostic
from policy_lang.linting import Linter
from policy_lang.resolve import Resolved, resolve
from policy_lang.resolve.files import Reader
from policy_lang.source import Source

Load = Callable[[str], str]
"""Gives the text of the file of a name. Raises ``Unreadable``."""


class Look:
    """What is found in one file, and the real paths of all files that were read for it."""

    def __init__(self, resolved: Resolved, findings: list[Diagnostic]) -> None:
        self._resolved = resolved
        self.findings = findings
        self.source = resolved.unit.source
        self.read = frozenset(layer.unit.path for layer in (*resolved.layers, *resolved.imports))

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @cached_property
    def meaning(self) -> str | None:
        """The policy's fingerprint; ``None`` for a file with errors, which has no meaning."""
        if self.errors:
            return None
        from engine.core.policy import Policy

        return Policy.model_validate(self._resolved.policy()).fingerprint()


class Files:
    """Files by the names that the user gave them. ``load`` gives the text of one that is asked for first, from the
    disk if nothing is said, and ``reader`` the others that those ask for; ``linter`` knows the settings, and all rules
    run as they are without one."""

    def __init__(self, linter: Linter | None = None, load: Load | None = None, reader: Reader = disk.read) -> None:
        self._linter = linter
        self._others = reader
        self._load = load or (lambda name: disk.read(name, name).text)
        self._texts: dict[str, str] = {}
        self._looks: dict[str, Look] = {}
        self._read: dict[str, frozenset[str]] = {}

    @staticmethod
    def of_text(name: str, text: str) -> Files:
        """One text that stands in no file."""
        return Files(None, lambda _: text)

    def text(self, name: str) -> str:
        """A file's text as it is now. Raises ``Unreadable``."""
        place = os.path.realpath(name)
        if place not in self._texts:
            self._texts[place] = self._load(name)
        return self._texts[place]

    def write(self, name: str, text: str) -> None:
        """Let a file have another text."""
        place = os.path.realpath(name)
        if self._texts.get(place) == text:
            return
        self._texts[place] = text
        self._looks = {other: look for other, look in self._looks.items() if place not in look.read}

    def has_read(self, name: str, paths: Iterable[str]) -> None:
        """Tell what was read for a file that nobody has looked at here yet."""
        self._read[name] = frozenset(map(os.path.realpath, paths))

    def depending(self, name: str) -> list[str]:
        """The other files for which this one was read, at whatever time: what is tried may be taken back."""
        place = os.path.realpath(name)
        return [other for other, read in self._read.items() if other != name and place in read]

    def look(self, name: str) -> Look:
        """What is found in a file now. Raises ``Unreadable``."""
        look = self._looks.get(name)
        if look is None:
            look = self._looks[name] = self._looked(name, Source(name, self.text(name)))
            self._read[name] = self._read.get(name, frozenset()) | look.read
        return look

    def _looked(self, name: str, source: Source) -> Look:
        linter = self._linter
        if linter is None:
            resolved = resolve(source, os.path.realpath(name), None, {})
            return Look(resolved, findings_of(resolved, STRICT))
        judgement, clients = linter.judgement(name)
        place = os.path.realpath(name)
        root = os.path.dirname(place) if linter.root is None else os.path.realpath(linter.root)
        resolved = resolve(source, place, root, linter.params or {}, clients, self._reader)
        return Look(resolved, findings_of(resolved, judgement))

    def _reader(self, path: str, name: str) -> Source:
        """A file that another asks for, as it is now. Raises ``Unreadable``."""
        text = self._texts.get(path)
        return self._others(path, name) if text is None else Source(name, text)
