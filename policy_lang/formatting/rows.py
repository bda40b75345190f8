"""From a statement or a line of a block to the columns it is written in.

Knows the grammar's nodes and which of their parts stand under one another. Where the columns come to
stand is decided in ``columns``; white space and comments between statements are none of its business.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from policy_lang import tree
from policy_lang.formatting.reading import Reading
from policy_lang.lexer import Token

OPTIONS = (tree.Per, tree.Reserve, tree.Counting, tree.Atomic, tree.Partial)
"""The options of a limit in the order they are written in; ``atomic`` and ``partial`` exclude each other."""

KINDS: dict[type, str] = {
    tree.Extends: "file",
    tree.Import: "file",
    tree.Param: "name",
    tree.Let: "name",
    tree.Threshold: "at",
    tree.On: "on",
    tree.Tool: "tool",
    tree.Verify: "verify",
    tree.Setting: "setting",
    tree.Share: "setting",
    tree.Carve: "setting",
    tree.Price: "price",
}
"""Statements of one kind that stand below each other are aligned with each other."""


class Step:
    """One step of a ladder, with the comments that stand between it and what is before it."""

    def __init__(self, text: str, behind: str, above: Sequence[str]) -> None:
        self.text = text
        self.behind = behind
        """The comment at the end of the line above."""
        self.above = above
        """Comments on lines of their own."""


class Row:
    """A statement in columns: ``cells`` (``""`` where it has nothing in one), then a ladder of ``steps``."""

    def __init__(self, kind: str, gap: int, cells: list[str], steps: list[Step]) -> None:
        self.kind, self.gap, self.cells, self.steps = kind, gap, cells, steps
        self.comment = ""
        """What stands behind its last word."""
        self.lines: list[tuple[str, str]] = []
        """Set by ``columns``: its lines, each with the comment at its end."""

    def ladder(self) -> list[str]:
        """The steps as columns, on one line: its first ``then`` begins one, whatever comes behind it does not."""
        texts = [step.text for step in self.steps]
        alone = 0 if self.kind == "setting" else 1
        rest = "  ".join(texts[alone:])
        return [*texts[:alone], rest] if rest else texts[:alone]


class Unfit(Exception):
    """A comment stands where it could not be kept."""


def row(node: tree.Node, reading: Reading) -> Row:
    """The columns of a statement that is no block. Raises ``Unfit``."""
    tokens = reading.within(node.span.start, node.span.end)
    marks = _marks(tokens, getattr(node, "steps", ()))
    _refuse_comments(reading, tokens, marks)
    head, bounds = tokens[: marks[0]] if marks else tokens, [*marks, len(tokens)]
    made = [_step(reading, tokens, start, end) for start, end in pairwise(bounds)]
    return Row(KINDS.get(type(node), "line"), _gap(node), _cells(node, head), made)


def _marks(tokens: list[Token], steps: tuple[tree.Step, ...]) -> list[int]:
    """Index of the first token of each step, its ``then`` included."""
    starts = {step.span.start for step in steps}
    found = [at for at, token in enumerate(tokens) if token.start in starts] if steps else []
    return [at - 1 if tokens[at - 1].text == "then" else at for at in found]


def _step(reading: Reading, tokens: list[Token], start: int, end: int) -> Step:
    behind, *above = comments(reading.source.text[tokens[start - 1].end : tokens[start].start])
    return Step(joined(tokens[start:end]), behind, [line for line in above if line])


def _refuse_comments(reading: Reading, tokens: list[Token], marks: list[int]) -> None:
    """A name that begins with ``then-`` may begin a line too. Who puts a comment there gets it left alone."""
    text, first = reading.source.text, set(marks)
    for at, (before, token) in enumerate(pairwise(tokens), 1):
        if token.start - before.end > 1 and at not in first and "#" in text[before.end : token.start]:
            raise Unfit


def _gap(node: tree.Node) -> int:
    return 1 if isinstance(node, (tree.Extends, tree.Import, tree.Param, tree.Let)) else 2


def _cells(node: tree.Node, tokens: list[Token]) -> list[str]:
    """The columns of a statement, without its ladder."""
    match node:
        case tree.Setting():
            return _setting(node, tokens)
        case tree.Share() | tree.Carve():
            return [tokens[0].text, joined(tokens[1:]), ""]
        case tree.Param() | tree.Let():
            return [tokens[0].text, tokens[1].text, joined(tokens[2:])]
        case tree.Price():
            return _price(node, tokens)
        case tree.Threshold():
            return _split(tokens, node.action.span.start)
        case tree.Verify():
            return _split(tokens, node.claim.span.start)
        case tree.Tool():
            starts = [clause.span.start for clause in node.clauses]
            head, *clauses = _split(tokens, *starts)
            return [head, "  ".join(clauses)]
        case tree.Header() | tree.On():
            return [joined(tokens)]
    return [tokens[0].text, joined(tokens[1:])]


def _setting(node: tree.Setting, tokens: list[Token]) -> list[str]:
    """Resource, quantity, options."""
    resource, amount, *options = _split(tokens, node.value.span.start, *(option.span.start for option in node.options))
    order = sorted(zip(node.options, options, strict=True), key=lambda pair: _rank(pair[0]))
    return [resource, amount, " ".join(text for _, text in order)]


def _rank(option: tree.Option) -> int:
    return min(OPTIONS.index(type(option)), OPTIONS.index(tree.Atomic))


def _price(node: tree.Price, tokens: list[Token]) -> list[str]:
    """Model, then each price with the word before it; a column stays empty where no price of cached input is given."""
    prices = [node.input, *([node.cached] if node.cached else []), node.output, node.per]
    ends = [price.span.end for price in prices]
    starts = [next(token.start for token in tokens if token.start >= end) for end in (node.model.span.end, *ends[:-1])]
    cells = _split(tokens, *starts)
    return cells if node.cached else [*cells[:2], "", *cells[2:]]


def _split(tokens: list[Token], *starts: int) -> list[str]:
    """The text of the tokens, cut in front of those that begin at ``starts``."""
    cells: list[list[Token]] = [[]]
    cuts = set(starts)
    for token in tokens:
        if token.start in cuts:
            cells.append([])
        cells[-1].append(token)
    return [joined(cell) for cell in cells]


def joined(tokens: Sequence[Token]) -> str:
    """Tokens as they are written in one column."""
    text, tight = "", True
    for token in tokens:
        text += token.text if tight or token.kind in ("COMMA", "DOTDOT") else f" {token.text}"
        tight = token.kind == "DOTDOT"
    return text


def comments(gap: str) -> list[str]:
    """The comment of each line of a stretch without tokens, ``""`` for a line that has none."""
    return [line.strip() for line in gap.split("\n")]
