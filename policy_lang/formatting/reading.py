"""What of a file can be understood, line by line, and what not.

A check wants to guess what a broken line was meant to be; a formatter must not. So this reads with the
same parser but without its guesses: a line that does not fit is ``Broken``, the rest is as it would be without it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from policy_lang import tree
from policy_lang.lexer import END, NEWLINE, Token
from policy_lang.parser import Parser
from policy_lang.source import Source
from policy_lang.tables import tables

if TYPE_CHECKING:
    from policy_lang.recovery.site import Site

MAX_REPAIRS = 1_000
"""Lines that do not fit, before the file is taken for something else than a policy."""


class NoPolicy(Exception):
    """Too little of the file can be understood."""


class Reading:
    """A file's tree and its tokens as they stand in the text.

    ``tree`` has ``Broken`` where a line could not be understood; ``clean`` says that all could. Raises ``NoPolicy``.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._parser = Parser(source, tables())
        self.tokens = list(self._parser.tokens)
        self._site: Site | None = None
        self._repairs = 0
        self._last = -1
        self._unclosed: set[int] = set()
        self.tree = self._parser.run(self._repair)

    @property
    def clean(self) -> bool:
        return not self._repairs

    def within(self, start: int, end: int) -> list[Token]:
        """The tokens between two offsets, line ends left out."""
        at = bisect_left(self.tokens, start, key=_start)
        found = []
        while self.tokens[at].start < end:
            if self.tokens[at].kind != NEWLINE:
                found.append(self.tokens[at])
            at += 1
        return found

    def body(self, block: tree.Node) -> tuple[Token, Token] | None:
        """The braces of a block. ``None`` if one is missing, or shares its line with what it should not."""
        span = block.span
        at = bisect_left(self.tokens, span.start, key=_start)
        while self.tokens[at].kind not in ("_LB", NEWLINE, END):
            at += 1
        opening = self.tokens[at]
        if opening.kind != "_LB" or opening.start in self._unclosed or self.tokens[at + 1].kind != NEWLINE:
            return None
        at = bisect_left(self.tokens, span.end, key=_start) - 1
        closing = self.tokens[at]
        alone = self.tokens[at - 1].kind == NEWLINE and self.tokens[at + 1].kind == NEWLINE
        return (opening, closing) if closing.kind == "_RB" and alone else None

    def _repair(self) -> None:
        """Called by the parser at a token that does not fit."""
        from policy_lang.recovery import blocks
        from policy_lang.recovery.site import Site

        site = self._site = self._site or Site(self._parser)
        self._repairs += 1
        if self._repairs > MAX_REPAIRS:
            raise NoPolicy
        site.arrive()
        opened, again = site.opener(), site.token.start == self._last
        self._last = site.token.start
        if site.token.kind == END:
            blocks.end_of_file(site)
        elif again or not blocks.unclosed(site):
            site.skip()
            return
        if opened is not None:
            self._unclosed.add(opened[0].span.start)


def _start(token: Token) -> int:
    return token.start
