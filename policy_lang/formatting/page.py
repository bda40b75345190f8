"""A file written anew: statements in columns, comments where they were, broken parts as they were.

Knows lines, blank lines, comments and blocks. How one statement is spelt is the business of ``rows``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from policy_lang import tree
from policy_lang.formatting.columns import align, common
from policy_lang.formatting.reading import Reading
from policy_lang.formatting.rows import Row, Unfit, comments, joined, row
from policy_lang.lexer import Token
from policy_lang.width import width

INDENT = 2


class Verbatim(NamedTuple):
    """Whole lines, with the line end of each if it has one, that are kept to the byte."""

    text: str


class Fixed(NamedTuple):
    """A line that is no row: a brace, a comment, a blank line."""

    text: str
    comment: str = ""


class Page:
    """A file's statements in order, and then its text. ``left``: the first and the last line of each broken part."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.text = reading.source.text
        self.left: list[tuple[int, int]] = []
        self._pieces: list[Verbatim | Fixed | Row] = []
        self._at = 0
        """Up to where the file has been written; always the start of a line."""
        self._run: list[Row] = []
        self._blank = False
        self._opened = True
        """Has nothing been written yet of the file, or of the present block?"""
        for group in self._by_lines(reading.tree.statements):
            self._statement(group)
        self._align_run()
        self._lead(len(self.text), 0)

    # ---- statements

    def _by_lines(self, nodes: tuple[tree.Node, ...]) -> list[list[tree.Node]]:
        """Statements, those together that share a line; only where something is broken do any."""
        groups: list[list[tree.Node]] = []
        for node in nodes:
            if groups and self.text.find("\n", groups[-1][-1].span.end, node.span.start) < 0:
                groups[-1].append(node)
            else:
                groups.append([node])
        return groups

    def _statement(self, nodes: list[tree.Node]) -> None:
        node = nodes[0]
        block = hasattr(node, "lines")
        apart = self._lead(node.span.start, 0)
        if apart or block:
            self._align_run()
        braces = self.reading.body(node) if block and len(nodes) == 1 else None
        if braces:
            self._block(node, braces)
        elif made := self._row(nodes):
            if self._run and self._run[0].kind != made.kind:
                self._align_run()
            self._run.append(made)

    def _block(self, node: Any, braces: tuple[Token, Token]) -> None:
        opening, closing = braces
        self._fixed(joined(self.reading.within(node.span.start, opening.end)), opening.end)
        self._opened = True
        rows: dict[str, list[Row]] = {}
        for group in self._by_lines(node.lines):
            self._lead(group[0].span.start, INDENT)
            if made := self._row(group):
                rows.setdefault(made.kind, []).append(made)
        for aligned in rows.values():
            align(aligned, INDENT)
        self._lead(closing.start, INDENT)
        self._blank = False
        self._fixed("}", closing.end)

    def _row(self, nodes: list[tree.Node]) -> Row | None:
        """The row of a statement, its comment included; what cannot be one is copied."""
        node = nodes[0]
        if len(nodes) == 1 and not isinstance(node, tree.Broken) and not hasattr(node, "lines"):
            try:
                made = row(node, self.reading)
            except Unfit:
                self._copy(nodes)
                return None
            made.comment = self._finish(node.span.end)
            self._add(made)
            return made
        start, end = self._copy(nodes)
        line_of = self.reading.source.line_of
        self.left.append((line_of(start), line_of(end)))
        return None

    def _copy(self, nodes: list[tree.Node]) -> tuple[int, int]:
        start, end = self._at, nodes[-1].span.end
        self._finish(end)
        self._add(Verbatim(self.text[start : self._at]))
        return start, end

    def _align_run(self) -> None:
        align(self._run, 0)
        self._run = []

    # ---- what stands between them

    def _lead(self, until: int, indent: int) -> bool:
        """The comments and blank lines before a place, up to the start of its line; is there a blank line?"""
        end = self.text.rfind("\n", self._at, until) + 1 if until < len(self.text) else until
        if end <= self._at:
            return False
        lines = comments(self.text[self._at : end].removesuffix("\n"))
        for comment in lines:
            if comment:
                self._add(Fixed(" " * indent + comment))
            else:
                self._blank = True
        self._at = end
        return "" in lines

    def _finish(self, end: int) -> str:
        """Go on to the next line; gives the comment that stands behind what ended at ``end``."""
        newline = self.text.find("\n", end)
        newline = len(self.text) if newline < 0 else newline
        self._at = min(newline + 1, len(self.text))
        return self.text[end:newline].strip()

    def _fixed(self, code: str, end: int) -> None:
        self._add(Fixed(code, self._finish(end)))

    def _add(self, piece: Verbatim | Fixed | Row) -> None:
        if self._blank and not self._opened:
            self._pieces.append(Fixed(""))
        self._blank = self._opened = False
        self._pieces.append(piece)

    # ---- the text

    def written(self, end: str) -> str:
        """The whole text, its lines ended by ``end``."""
        out: list[str] = []
        noted: list[tuple[str, str]] = []  # lines below each other that all have a comment at their end

        def flush() -> None:
            if not noted:
                return
            column = common((width(code) + 2, width(comment)) for code, comment in noted)
            for code, comment in noted:
                out.append(code + " " * (max(column, width(code) + 2) - width(code)) + comment + end)
            noted.clear()

        for piece in self._pieces:
            lines = piece.lines if isinstance(piece, Row) else [(piece.text, getattr(piece, "comment", ""))]
            if not isinstance(piece, Row):
                flush()
            for code, comment in lines:
                if comment:
                    noted.append((code, comment))
                    continue
                flush()
                out.append(code if isinstance(piece, Verbatim) else code + end)
            if not isinstance(piece, Row):
                flush()
        flush()
        return "".join(out)
