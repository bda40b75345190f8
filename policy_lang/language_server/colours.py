"""What kind of word each word of a document is, for an editor's colours.

A keyword is one only where the grammar takes it for one, so that the tree must be asked and no list of words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lsprotocol import types

from policy_lang import tree
from policy_lang.language_server import uses
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.cursor import walk
from policy_lang.lexer import lex
from policy_lang.tables import tables

KINDS: Final = ("keyword", "comment", "string", "number", "variable", "property", "enumMember", "operator", "class")
MODIFIERS: Final = ("declaration", "readonly")

LEGEND: Final = types.SemanticTokensLegend(list(KINDS), list(MODIFIERS))

_COMMENT = re.compile(r'"(?:\\[^\r\n]|[^"\\\r\n])*"?|#[^\r\n]*')
_OPERATORS = frozenset(("ARROW", "DOTDOT", "STAR"))


_KEPT = frozenset(("override", "locked", "jitter", "not", "..", "<=", ">=", "<", ">", "=", "!="))
"""Keywords and signs that the tree keeps as names."""

_FACTS = ("compare", "fact_is", "expect_count")


class Coloured(NamedTuple):
    start: int
    end: int
    kind: str
    declares: bool = False


def tokens(analysis: Analysis) -> types.SemanticTokens:
    """All words, in the protocol's five numbers each."""
    data: list[int] = []
    line = column = 0
    for token in sorted(_coloured(analysis)):
        place = analysis.lines.position(token.start)
        length = analysis.lines.units(analysis.source.text[token.start : token.end])
        data += [place.line - line, place.character - (column if place.line == line else 0), length]
        constant = token.kind == "variable"
        data += [KINDS.index(token.kind), (1 if token.declares else 0) | (2 if constant else 0)]
        line, column = place.line, place.character
    return types.SemanticTokens(data)


def _coloured(analysis: Analysis) -> Iterator[Coloured]:
    text = analysis.source.text
    for match in _COMMENT.finditer(text):
        if match.group().startswith("#"):
            yield Coloured(match.start(), match.end(), "comment")
    named = _named(analysis.file)
    for token in lex(text, tables()):
        kind = _kind(token.kind, token.text)
        if token.start in named and token.kind in ("NAME", "STRING"):
            yield named[token.start]
        elif kind and token.text:
            yield Coloured(token.start, token.end, kind)


def _kind(terminal: str, text: str) -> str:
    if terminal == "NAME":
        # what the tree does not know as a name is a keyword, or stands in a line that could not be understood
        return "keyword" if text in tables().keywords else ""
    if terminal in ("STRING", "OPEN_STRING", "OTHER_STRING"):
        return "string"
    if terminal == "QUANTITY":
        return "number"
    if terminal == "UNLIMITED":
        return "keyword"
    return "operator" if terminal in _OPERATORS else ""


def _named(file: tree.File) -> dict[int, Coloured]:
    """The names of a tree, by where they begin."""
    found: dict[int, Coloured] = {}
    for node in walk(file):
        if isinstance(node, tree.Name) and node.text not in _KEPT:
            found.setdefault(node.span.start, Coloured(node.span.start, node.span.end, "enumMember"))
        fact = node.parts[0] if isinstance(node, tree.Act) and node.kind in _FACTS else None
        for word in (fact, getattr(node, "resource", None)):
            if isinstance(word, tree.Name):
                found[word.span.start] = Coloured(word.span.start, word.span.end, "property")
    for word in uses.constants(file):
        found[word.span.start] = Coloured(word.span.start, word.span.end, "variable")
    for text in uses.agents(file):
        found[text.span.start] = Coloured(text.span.start, text.span.end, "class")
    for statement in file.statements:
        if isinstance(statement, tree.Param | tree.Let) and isinstance(statement.name, tree.Name):
            span = statement.name.span
            found[span.start] = Coloured(span.start, span.end, "variable", declares=True)
    return found
