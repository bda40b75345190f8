"""The files of one policy: the one that was named, what it extends, what it imports.

Finds and parses them, confined to a root directory; cycles, long chains and unreadable files are
findings at the statement that asked for the file. Knows paths and statements, not their meaning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.names import nearest
from policy_lang.parser import parse
from policy_lang.report import Report
from policy_lang.source import Source, Span, Unreadable, read
from policy_lang.texts import unescape

MAX_DEPTH = 16
"""Files in a chain of ``extends`` and ``import``, the first included."""

IMPORTED = (tree.Header, tree.Import, tree.Let, tree.Breaker, tree.Tool, tree.Test, tree.Broken)
"""What an imported file may contain. Limits and all that goes with them come by ``extends`` only."""


Reader = Callable[[str, str], Source]
"""Gives the file at a path, to be called by a name in findings. Raises ``Unreadable``."""


class Unit:
    """One file of a policy, with the files it asks for. ``path`` is absolute, ``source.name`` what the user sees."""

    def __init__(self, path: str, source: Source, file: tree.File) -> None:
        self.path = path
        self.source = source
        self.file = file
        self.base: Unit | None = None
        self.imports: list[Unit] = []

    @property
    def wants_base(self) -> bool:
        """Does it extend another file, found or not?"""
        return any(isinstance(statement, tree.Extends) for statement in self.file.statements)

    @property
    def broken(self) -> bool:
        """Was there something that could not be read? Then what seems absent may only be misspelt."""
        return any(_is_broken(statement) for statement in self.file.statements)

    @cached_property
    def importable(self) -> bool:
        """May other files import it? Then its names may be used where nobody sees it from here."""
        return all(isinstance(statement, IMPORTED) for statement in self.file.statements)

    def chain(self) -> list[Unit]:
        """This file and what it extends, nearest first."""
        units: list[Unit] = [self]
        unit = self.base
        while unit is not None:
            units.append(unit)
            unit = unit.base
        return units

    def imported(self) -> list[Unit]:
        """Every file this one imports, directly or through another, each once."""
        found: dict[int, Unit] = {}
        waiting = list(self.imports)
        while waiting:
            unit = waiting.pop(0)
            if id(unit) not in found:
                found[id(unit)] = unit
                waiting += unit.imports
        return list(found.values())


def _is_broken(statement: tree.Statement) -> bool:
    lines = getattr(statement, "lines", ())
    return isinstance(statement, tree.Broken) or any(isinstance(line, tree.Broken) for line in lines)


class Loader:
    """Loads a file and everything it asks for. ``root`` is absolute and real; ``None`` allows no other file."""

    def __init__(self, root: str | None, report: Report, reader: Reader = read) -> None:
        self.root = root
        self.report = report
        self.reader = reader
        self.sources: list[Source] = []
        """Every source read, the named one first."""
        self._done: dict[str, Unit] = {}

    def load(self, path: str, source: Source, stack: tuple[Unit, ...] = (), imported: bool = False) -> Unit:
        """Parse a source and load what it asks for. ``stack`` holds the files that led here."""
        parsed = parse(source)
        self.sources.append(source)
        self.report.findings += parsed.findings
        unit = Unit(path, source, parsed.file)
        stack = (*stack, unit)
        bases = [s for s in unit.file.statements if isinstance(s, tree.Extends)]
        for again in bases[1:]:
            self.report.error(
                "P210",
                "a policy extends one file only",
                again.span,
                "a second base",
                Label(bases[0].span, "the first"),
                help="`import` brings in tools and texts of other files",
            )
        if bases and not imported:
            unit.base = self._ask(unit, bases[0].path, stack, imported=False)
        for statement in unit.file.statements:
            if isinstance(statement, tree.Import) and (other := self._ask(unit, statement.path, stack, imported=True)):
                unit.imports.append(other)
        return unit

    def _only_importable(self, unit: Unit, imported: Span) -> None:
        for statement in unit.file.statements:
            if not isinstance(statement, IMPORTED):
                self.report.error(
                    "P408",
                    f"an imported file cannot contain `{statement.keyword}`",
                    statement.span.head(),
                    "not brought in by `import`",
                    Label(imported, "imported here"),
                    help="`extends` the file, or move this to a file that is not imported",
                )

    def _ask(self, unit: Unit, word: tree.Quoted, stack: tuple[Unit, ...], imported: bool) -> Unit | None:
        """The file named by an ``extends`` or ``import`` statement, or ``None`` and a finding."""
        if isinstance(word, tree.Missing):
            return None
        asked = unescape(word, self.report)
        try:
            path = self._confined(unit, asked, word.span)
        except ValueError:  # a NUL in the path
            path = None
            self.report.error("P401", f"`{asked!a}` is not a path", word.span)
        if path is None:
            return None
        names = [other.path for other in stack]
        if path in names:
            loop = [other.source.name for other in stack[names.index(path) :]]
            text = " -> ".join([*loop, loop[0]])
            self.report.error("P406", f"these files ask for each other: {text}", word.span, "closes the circle")
            return None
        if len(stack) >= MAX_DEPTH:
            self.report.error(
                "P407",
                f"more than {MAX_DEPTH} files in a chain",
                word.span,
                f"file number {len(stack) + 1}",
                help="merge some of them",
            )
            return None
        done = self._done.get(path)
        if done is None:
            name = os.path.normpath(os.path.join(os.path.dirname(unit.source.name), asked))
            try:
                source = self.reader(path, name)
            except Unreadable as problem:
                if word.span.text.startswith('"'):  # else it is told that a path stands in quotes
                    self._unreadable(problem, path, word)
                return None
            done = self._done[path] = self.load(path, source, stack, imported)
        if imported:
            self._only_importable(done, word.span)
        return done

    def _confined(self, unit: Unit, asked: str, span: Span) -> str | None:
        """The real path of a file asked for, or ``None`` and a finding if it lies outside of the root."""
        if self.root is None:
            self.report.error(
                "P405",
                "a policy given as text has no directory of its own",
                span,
                "relative to nothing",
                help="pass `root`, the directory its paths start from",
            )
            return None
        if not asked:
            self.report.error("P401", "this path is empty", span, "expected a file")
            return None
        if os.path.isabs(asked):
            self.report.error("P405", "paths are relative to the file they stand in", span, "an absolute path")
            return None
        real = os.path.realpath(os.path.join(os.path.dirname(unit.path), asked))
        if os.path.commonpath([real, self.root]) != self.root:
            self.report.error(
                "P405",
                f"`{asked}` lies outside of the root directory",
                span,
                "leaves the root",
                help="the root is the directory of the first file, unless another is given (`--root DIR`)",
            )
            return None
        return real

    def _unreadable(self, problem: Unreadable, path: str, word: tree.Text) -> None:
        help, fix = problem.help, ()
        if problem.code == "P401" and "does not exist" in problem.message:
            folder, name = os.path.split(path)
            near = nearest(name, _policies(folder))
            if near:
                better = word.raw.removesuffix(f'{name}"') + f'{near}"'
                help, fix = f"did you mean `{near}`?", (Edit(word.span, better),)  # type: ignore[assignment]
        label = "no such file" if problem.code == "P401" else "expected a policy file"
        self.report.error(problem.code, problem.message, word.span, label, help=help, fix=fix)


def _policies(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".policy")]
    except OSError:
        return []
