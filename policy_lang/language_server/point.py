"""What could be written at a place: what the parser would accept there, and the words of the line before it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from policy_lang.lexer import NEWLINE, OPEN_STRING, Token, lex
from policy_lang.parser import Parser
from policy_lang.recovery import Recovery
from policy_lang.recovery.site import STATEMENTS, Site
from policy_lang.source import Source
from policy_lang.tables import tables

_MARK: Final = "\x01"
"""A sign that fits nowhere, so that the parser calls for help when it gets there."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_NUMBER = re.compile(r"[0-9$%]\Z|[0-9]\.\Z")
_LINE_START = re.compile(r"(?:\A|\n)[ \t]*\Z")
_STATEMENT = re.compile(rf"^(?:{'|'.join(sorted(STATEMENTS - {'at', 'on', 'tool'}))})\b", re.MULTILINE)
"""Where a statement begins for certain: what comes before it, broken or not, does not matter to it."""
_COMMENT = re.compile(r'"(?:\\[^\r\n]|[^"\\\r\n])*"?|#[^\r\n]*')

TEXT, NUMBER = '"', "0"
"""What stands for any text, and for any quantity, among the words of a line."""


class Point(NamedTuple):
    """``start`` is where the word under the cursor begins; ``accepts`` are the terminals that fit there.

    ``block`` is the keyword of the block it lies in, "" outside of one; ``words`` are those of its line, as written but
    for texts and quantities. ``quoted``: it lies in a text whose quote is open; ``comment``: in a comment.
    """

    start: int
    accepts: frozenset[str] = frozenset()
    block: str = ""
    words: tuple[str, ...] = ()
    quoted: bool = False
    comment: bool = False

    @property
    def first(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def last(self) -> str:
        return self.words[-1] if self.words else ""


class _Arrived(Exception):
    """The parser has got to the mark."""


def point_at(text: str, offset: int) -> Point:
    """The point at an offset of a text."""
    before = text[:offset]
    if (comment := _comment_at(before)) is not None:
        return Point(comment, comment=True)
    start, quoted = offset, False
    tokens = lex(before, tables())
    last = next((token for token in reversed(tokens) if token.text), None)
    if last is not None and last.kind == OPEN_STRING:
        start, quoted = last.start, True
    elif match := _WORD.search(before):
        start = match.start()
    if not quoted and _NUMBER.search(before[:start]):  # a quantity is being written, or its unit
        return Point(offset)
    parser = _parsed(before[:start])
    if parser is None:
        return Point(start + quoted)
    accepts = set(parser.accepts())
    if not quoted and _LINE_START.search(before[:start]) and _continues(before[:start]):
        accepts.add("THEN")
    opener = Site(parser).opener()
    words = tuple(_shown(token) for token in _line(parser))
    return Point(start + quoted, frozenset(accepts), opener[1] if opener else "", words, quoted)


def _comment_at(before: str) -> int | None:
    """Where the comment begins that reaches to the end of a text."""
    last = None
    for match in _COMMENT.finditer(before, before.rfind("\n") + 1):
        last = match
    return last.start() if last and last.group()[0] == "#" and last.end() == len(before) else None


def _parsed(text: str) -> Parser | None:
    """A parser that has read all of a text; ``None`` if the last line of it is broken."""
    begins = 0
    for match in _STATEMENT.finditer(text):
        begins = match.start()
    text = text[begins:]
    parser = Parser(Source("", text + _MARK), tables())
    recovery = Recovery(parser)

    def repair() -> None:
        if parser.tokens[parser.index].start >= len(text):
            raise _Arrived
        recovery.repair()

    try:
        parser.run(repair)
    except _Arrived:
        # in a broken line the parser gets to the mark as well, with the line as a `Broken` before it
        return parser if parser.tokens[parser.index].text == _MARK else None
    return None


def _continues(text: str) -> bool:
    """Could the line go on with `then`, as the next step of the line above?"""
    parser = _parsed(f"{text}then ")
    line = _line(parser) if parser else []
    return len(line) > 1 and line[-1].text == "then"


def _line(parser: Parser) -> list[Token]:
    """The tokens of the line that have been read."""
    at = parser.index
    while at and parser.tokens[at - 1].kind != NEWLINE and parser.tokens[at - 1].text != "{":
        at -= 1
    return parser.tokens[at : parser.index]


def _shown(token: Token) -> str:
    return TEXT if token.kind == "STRING" else NUMBER if token.kind == "QUANTITY" else token.text
