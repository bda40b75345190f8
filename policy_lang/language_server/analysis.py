"""One document as the editor has it now, read and judged with everything it asks for.

Knows no protocol beyond places in a text. Never raises for what stands in a file or in its settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cached_property

from pygls.uris import to_fs_path

from policy_lang import settings, tree
from policy_lang.checking import STRICT, Judgement, findings_of
from policy_lang.diagnostics import Diagnostic, Label
from policy_lang.language_server.positions import Lines
from policy_lang.linting import Linter
from policy_lang.parser import parse
from policy_lang.resolve import Resolved, resolve
from policy_lang.resolve.files import Unit
from policy_lang.settings import SettingsError
from policy_lang.source import Source, Span, Unreadable, decode, read

BOM = "\ufeff"

Unsaved = Callable[[str], str | None]
"""The text that the editor has for the file at a real path, ``None`` where it has none open."""


class Analysis:
    """A document. ``path`` is its real path, "" for one that is in no file yet.

    ``resolved`` is ``None`` where the text cannot be read at all; ``findings`` says why, and otherwise all that
    ``policy lint`` says. ``trouble`` says what is wrong with the settings for this file, "" if nothing is. Of what the
    settings declare, ``clients``, ``tools`` and ``agents`` are ``None`` where they say nothing; ``models`` are those of
    the clients. ``judged_from`` is the directory that settings and other files are sought up to, ``None`` if nobody
    has named one.
    """

    def __init__(
        self,
        text: str,
        uri: str,
        unsaved: Unsaved = lambda path: None,
        root: str | None = None,
        encoding: str = "utf-16",
    ) -> None:
        self.uri, self.encoding = uri, encoding
        self.path = path = os.path.realpath(found) if (found := to_fs_path(uri)) else ""
        self.root = root or (os.path.dirname(path) if path else None)
        self.judged_from = root
        self.unsaved = unsaved
        self.lines = Lines(text, encoding, len(BOM) if text.startswith(BOM) else 0)
        self.source = Source(os.path.basename(path or uri) or "<unsaved>", text.removeprefix(BOM))
        self.trouble = ""
        self.clients: list[str] | None = None
        self.tools: list[str] | None = None
        self.agents: list[str] | None = None
        self.models: list[str] = []
        self.resolved: Resolved | None = None
        self.findings: list[Diagnostic] = []
        self._judge(text, root)

    def _judge(self, text: str, root: str | None) -> None:
        try:
            self.source = decode(text.encode("utf-8", "surrogatepass"), self.source.name)
        except Unreadable as problem:
            here = Label(Span(self.source, 0, 0))
            self.findings = [Diagnostic(problem.code, problem.message, here, help=problem.help)]
            return
        place = self.path or os.path.join(self.root or "", "<unsaved>")
        judgement, problems = self._settings(root) if self.path else (STRICT, [])
        self.resolved = resolve(self.source, place, self.root, {}, self.clients, self.reader)
        self.findings = [*problems, *findings_of(self.resolved, judgement)]

    def _settings(self, root: str | None) -> tuple[Judgement, list[Diagnostic]]:
        """How the file is judged, and what is wrong with the settings. Read anew each time: they are files too."""
        linter = Linter(root=root)
        found = linter.settings_of(self.path)
        self.tools = None if found.tools is None else list(found.tools)
        try:
            judgement, self.clients = linter.judgement(self.path)
            declared = (judgement.around.clients or {}).values()
            self.models = sorted({client.model for client in declared})
            if place := settings.find(os.path.dirname(self.path), root):
                self.agents = list(settings.load(place).agents)
        except SettingsError as problem:
            self.trouble = str(problem)
            judgement = STRICT
        return judgement, list(found.problems)

    def reader(self, path: str, name: str) -> Source:
        """A file as the editor has it. Raises ``Unreadable``."""
        text = self.unsaved(path)
        return read(path, name) if text is None else decode(text.encode("utf-8", "surrogatepass"), name)

    # ---- what it consists of

    @cached_property
    def file(self) -> tree.File:
        """The document's own tree, whole or recovered."""
        return self.resolved.unit.file if self.resolved else parse(Source(self.source.name, "")).file

    def units(self) -> Iterator[Unit]:
        """The file, its bases, and what any of them imports, each once."""
        if self.resolved is None:
            return
        seen: set[int] = set()
        for member in self.resolved.unit.chain():
            for unit in (member, *member.imported()):
                if id(unit) not in seen:
                    seen.add(id(unit))
                    yield unit

    @cached_property
    def paths(self) -> dict[int, str]:
        """The real path of each source, by its identity."""
        return {id(unit.source): unit.path for unit in self.units()} | {id(self.source): self.path}

    def depends_on(self, path: str) -> bool:
        """May it read otherwise once the file at a real path has changed?"""
        return path in self.paths.values() or any(finding.code.startswith("P40") for finding in self.findings)

    def lines_of(self, source: Source) -> Lines:
        return self.lines if source is self.source else Lines(source.text, self.encoding)

    def asked_at(self, source: Source) -> Span | None:
        """The word of the document by which another file came in: its own `extends` or `import`."""
        if self.resolved is None:
            return None
        for statement in self.file.statements:
            if isinstance(statement, tree.Extends | tree.Import) and isinstance(statement.path, tree.Text):
                unit = self.unit_of(statement)
                if unit and any(source is other.source for other in _below(unit)):
                    return statement.path.span
        return None

    def unit_of(self, statement: tree.Extends | tree.Import) -> Unit | None:
        """The file that one of the document's statements asks for, if it could be read."""
        if self.resolved is None or not isinstance(statement.path, tree.Text):
            return None
        own = self.resolved.unit
        asked = statement.path.raw[1:-1]
        place = os.path.realpath(os.path.join(os.path.dirname(own.path), asked)) if "\0" not in asked else ""
        known = [own.base] if isinstance(statement, tree.Extends) else own.imports
        return next((unit for unit in known if unit and unit.path == place), None)


def _below(unit: Unit) -> Iterator[Unit]:
    for member in unit.chain():
        yield member
        yield from member.imported()
