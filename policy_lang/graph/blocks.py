"""Items and boxes as blocks of lines with a size, before anybody says where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.core.policy import Origin
from policy_lang.graph.metrics import width, wrapped
from policy_lang.graph.picture import Box, Item

TITLE: Final = 14.0
SMALL: Final = 11.5
TEXT: Final = 12.0
NUMBER: Final = 10.0
LEADING: Final = 16.0
"""Sizes of fonts, and the distance of two lines."""

WIDEST: Final = 215.0
"""No line of an item is wider."""

PAD: Final = 12.0
_GUTTER: Final = 7.0
"""Between the number of a line and its text."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text. ``number`` says where the rule stands, on the first line of its item."""

    text: str
    item: Item
    number: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines with the room they take; ``gutter`` is how far texts stand to the right of the block's edge."""

    lines: tuple[Line, ...]
    width: float
    height: float
    gutter: float


def numbered(origin: Origin | None, main: str) -> str:
    """A line of the main file by its number alone, of another one with its name."""
    if origin is None:
        return ""
    if origin.file == main:
        return str(origin.line)
    name = origin.file.replace("\\", "/").rpartition("/")[2].removesuffix(".policy")
    short = name if len(name) <= 12 else f"{name[:11]}…"
    return f"{short}:{origin.line}"


def block(items: tuple[Item, ...], main: str, most: float = WIDEST) -> Block:
    """The lines of some items, one below the other."""
    lines: list[Line] = []
    for item in items:
        text = item.text if item.sure else f"{item.text} (?)"
        for place, part in enumerate(wrapped(text, TEXT, most) if text else []):
            lines.append(Line(part, item, numbered(item.origin, main) if place == 0 else ""))
    numbers = max((width(line.number, NUMBER) for line in lines), default=0.0)
    gutter = numbers + _GUTTER if numbers else 0.0
    widest = max((width(line.text, TEXT) for line in lines), default=0.0)
    return Block(tuple(lines), widest + gutter, len(lines) * LEADING, gutter)


@dataclass(frozen=True, slots=True)
class Card:
    """A box with its size: a title (shortened where it is long), a note, and its items."""

    box: Box
    title: str
    note: str
    body: Block
    width: float
    height: float


def card(box: Box, main: str) -> Card:
    """What a box takes."""
    if box.kind == "start":
        return Card(box, "", "", block((), main), 12.0, 12.0)
    title = wrapped(box.title, TITLE, WIDEST, 1)[0]
    body = block(box.items, main)
    wide = max(width(title, TITLE) * 1.08, width(box.note, SMALL), body.width) + 2 * PAD
    tall = 2 * PAD - 4 + TITLE + (LEADING if box.note else 0) + (body.height + 8 if box.items else 0)
    return Card(box, title, box.note, body, max(wide, 96.0), tall)
