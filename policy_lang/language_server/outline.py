"""The parts of a document: for an editor's outline, and for what it can fold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from policy_lang import tree
from policy_lang.language_server.analysis import Analysis

_KIND = types.SymbolKind
_KINDS: dict[type[tree.Node], types.SymbolKind] = {
    tree.Header: _KIND.Package,
    tree.Extends: _KIND.Module,
    tree.Import: _KIND.Module,
    tree.Param: _KIND.Variable,
    tree.Let: _KIND.Constant,
    tree.Limits: _KIND.Namespace,
    tree.Finalization: _KIND.Namespace,
    tree.Agents: _KIND.Namespace,
    tree.Prices: _KIND.Namespace,
    tree.Agent: _KIND.Class,
    tree.Breaker: _KIND.Interface,
    tree.Tool: _KIND.Function,
    tree.Test: _KIND.Method,
    tree.Verify: _KIND.Method,
    tree.Setting: _KIND.Property,
    tree.Price: _KIND.Property,
}

_COMMENTS = re.compile(r"(?:^[ \t]*#[^\n]*(?:\n|\Z)){2,}", re.MULTILINE)
_TITLE = 60
"""Longest title of a part, in characters."""


def symbols(analysis: Analysis) -> list[types.DocumentSymbol]:
    """The statements, and the lines of those that are blocks, but for the lines of tests."""
    return [symbol for node in analysis.file.statements if (symbol := _symbol(node, analysis))]


def _symbol(node: tree.Node, analysis: Analysis) -> types.DocumentSymbol | None:
    title = _title(node)
    if isinstance(node, tree.Broken) or not title:
        return None
    lines = () if isinstance(node, tree.Test) else getattr(node, "lines", ())
    inner = [symbol for line in lines if (symbol := _symbol(line, analysis))]
    head = node.span.head(2)
    start = head.start
    selected = analysis.lines.range(start, min(node.span.end, max(start, head.end)))
    kind = _KINDS.get(type(node), _KIND.Event)
    return types.DocumentSymbol(title, kind, analysis.lines.of(node.span), selected, children=inner or None)


def _title(node: tree.Node) -> str:
    """Its first line, without the brace."""
    line = node.span.text.split("\n", 1)[0].strip()
    title = " ".join(line.removesuffix("{").split())
    return title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"


def foldings(analysis: Analysis) -> list[types.FoldingRange]:
    """Blocks, ladders that go on over several lines, and comments of more than one line."""
    found = [*_blocks(analysis), *_comments(analysis)]
    return sorted(found, key=lambda each: (each.start_line, -each.end_line))


def _blocks(analysis: Analysis) -> Iterator[types.FoldingRange]:
    for node in analysis.file.statements:
        for part in (node, *getattr(node, "lines", ())):
            first = analysis.lines.position(part.span.start).line
            last = analysis.lines.position(part.span.end).line
            # the line with the closing brace stays in sight
            last -= part is node and hasattr(node, "lines") and part.span.text.endswith("}")
            if last > first:
                yield types.FoldingRange(first, last)


def _comments(analysis: Analysis) -> Iterator[types.FoldingRange]:
    for match in _COMMENTS.finditer(analysis.source.text):
        first = analysis.lines.position(match.start()).line
        last = analysis.lines.position(match.end() - match.group().endswith("\n")).line
        yield types.FoldingRange(first, last, kind=types.FoldingRangeKind.Comment)
