"""Text to tokens, all at once.

The lexer takes its pattern from the grammar and adds only what the grammar calls wrong: quotes
that are never closed, other kinds of quotes, and characters the language has no use for. It
never fails; what is wrong is a token of its own, for the parser to report.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from policy_lang.tables import Tables

END = "$END"
NEWLINE = "_NL"
OPEN_STRING = "OPEN_STRING"
"""A double quote that the line does not close, up to the end of the line."""
OTHER_STRING = "OTHER_STRING"
"""A text in single or typographic quotes."""
STRAY = "STRAY"
"""A character that starts no token, or a run of the same."""

_WRONG = (
    r"""(?P<OTHER_STRING>'[^'\r\n]*'|“[^”"\r\n]*[”"]|„[^“”\r\n]*[“”]|«[^»\r\n]*»|`[^`\r\n]*`)"""
    r"""|(?P<OPEN_STRING>"[^\r\n]*)"""
    r"""|(?P<STRAY>\r+|/\*.*|//.*|([^\w\s])\4*|[^\w\s]|\s|\w+)"""
)


class Token(NamedTuple):
    """``kind`` is a terminal of the grammar or one of the above; ``text`` lies at ``start`` to ``end``."""

    kind: str
    text: str
    start: int
    end: int


_patterns: dict[str, re.Pattern[str]] = {}


def lex(text: str, tables: Tables) -> list[Token]:
    """Tokens of a text, always ended by a line end and ``$END``."""
    pattern = _patterns.get(tables.pattern)
    if pattern is None:
        pattern = _patterns[tables.pattern] = re.compile(f"{tables.pattern}|{_wrong(tables.pattern)}")
    tokens: list[Token] = []
    add = tokens.append
    for match in pattern.finditer(text):
        kind = match.lastgroup
        if kind != "IGNORED":
            add(Token(kind or STRAY, match.group(), match.start(), match.end()))
    size = len(text)
    if tokens and tokens[-1].kind != NEWLINE:
        add(Token(NEWLINE, "", tokens[-1].end, size))
    add(Token(END, "", size, size))
    return tokens


def _wrong(pattern: str) -> str:
    """The pattern of what is wrong, its back reference counted from the groups before it."""
    groups = re.compile(pattern).groups
    return _WRONG.replace("\\4", f"\\{groups + 4}")
