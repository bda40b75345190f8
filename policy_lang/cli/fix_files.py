"""Files on the disk that are fixed together: read, fixed in memory, and written back, each as a whole or not at all.

Writes only the files it was given the names of. What is printed is the business of ``fix``.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang.cli.findings import in_processes, without_repeats
from policy_lang.cli.rewriting import BOM
from policy_lang.diagnostics import Diagnostic
from policy_lang.fixing import Files, Fixer, fixable
from policy_lang.linting import Linter
from policy_lang.source import MAX_BYTES, Unreadable, decode
from policy_lang.stored import NotWritten, Stored, load, replace


class FixedFiles:
    """The files of these names, fixed in memory. Raises ``SettingsError``."""

    def __init__(self, linter: Linter, names: list[str], jobs: int | None, *, unsafe: bool) -> None:
        self.names = names
        self._linter = linter
        self._stored: dict[str, Stored] = {}
        self._texts: dict[str, str] = {}
        self._told = dict(zip(names, in_processes(linter.told, names, jobs), strict=True))
        self._files = Files(linter, self._load)
        for name, told in self._told.items():
            self._files.has_read(name, told.read)
        self.fixer = Fixer(self._files, names, unsafe=unsafe)
        self.fixer.run([name for name in names if any(fixable(f, name, unsafe) for f in self._told[name].findings)])

    def _load(self, name: str) -> str:
        self._stored[name] = load(name)
        self._texts[name] = decode(self._stored[name].data, name).text
        return self._texts[name]

    def changed(self) -> Iterator[tuple[str, bytes, bytes]]:
        """The files that are not as they were: name, old contents and new ones."""
        for name in self.names:
            if name in self._texts and self._files.text(name) != self._texts[name]:
                old = self._stored[name].data
                yield name, old, (BOM if old.startswith(BOM) else b"") + self._files.text(name).encode()

    def write(self) -> list[str]:
        """Put what has changed in the place of what was there; says what could not be written."""
        problems = []
        for name, _, new in list(self.changed()):
            try:
                if len(new) > MAX_BYTES:
                    raise NotWritten(f"`{name}` would be larger than 1 MiB with its fixes")
                replace(self._stored[name], new)
            except NotWritten as problem:
                problems.append(str(problem))
                self._files.write(name, self._texts[name])
                self.fixer.done.pop(name, None)
        return problems

    def found(self) -> list[Diagnostic]:
        """What is found in the files as they are now, those about the settings of each first."""
        new = {name for name, _, _ in self.changed()}
        new |= {other for name in new for other in self._files.depending(name)}
        return list(without_repeats(self._found(name, name in new) for name in self.names))

    def _found(self, name: str, anew: bool) -> list[Diagnostic]:
        problems = self._linter.settings_of(name).problems
        try:
            return [*problems, *(self._files.look(name).findings if anew else self._told[name].findings)]
        except Unreadable:  # gone since it was looked at first
            return [*problems, *self._told[name].findings]
