"""A picture as a Mermaid flowchart: text that GitHub, GitLab and many editors draw.

Everything that a policy's author wrote is escaped to what Mermaid takes for plain words, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from policy_lang.graph.blocks import numbered
from policy_lang.graph.picture import Arrow, Box, Item, Picture

_SHAPES: Final = {
    "start": ("((", "))"),
    "phase": ("[", "]"),
    "final": ("[", "]"),
    "wait": ("[", "]"),
    "agent": ("[", "]"),
    "good": ("([", "])"),
    "limit": ("([", "])"),
    "bad": ("([", "])"),
}
_STYLES: Final = {
    "final": "stroke:#6a55c9,stroke-width:2px",
    "wait": "stroke:#2a6cb3,stroke-width:2px",
    "good": "stroke:#1d7d4c,stroke-width:2px",
    "limit": "stroke:#ab6600,stroke-width:2px",
    "bad": "stroke:#bf323b,stroke-width:2px",
}
_PLAIN: Final = frozenset(" ,:/$()'?=")
"""Signs that mean nothing to Mermaid within quotes."""

LONGEST: Final = 120
"""Characters of one item: a picture is no place for a long text."""


def mermaid(picture: Picture, main: str) -> str:
    """The picture as text. ``main`` is the policy's file: of its lines only the number is told."""
    return "\n".join(_lines(picture, main)) + "\n"


def _lines(picture: Picture, main: str) -> Iterator[str]:
    ids = _ids(picture)
    yield f"%% {_comment(f'{picture.name}, {main}')}: numbers in parentheses are its lines"
    if picture.unsure:
        yield f"%% dotted, with a question mark: perhaps no run comes to it, for the search {_comment(picture.cut)}"
    yield "flowchart TD"
    yield f"  accTitle: The policy {_comment(picture.name)}"
    for box in _boxes(picture):
        yield f"  {_box(ids[box.id], box, main)}"
    for arrow in picture.arrows:
        yield f"  {_arrow(ids, arrow, main)}"
    for box in picture.tree[1:]:
        yield f"  {ids[picture.tree[0].id]} --- {ids[box.id]}"
    for kind, style in _STYLES.items():
        members = [ids[box.id] for box in _boxes(picture) if box.kind == kind]
        if members:
            yield f"  classDef {kind}Box {style}"
            yield f"  class {','.join(members)} {kind}Box"


def _boxes(picture: Picture) -> list[Box]:
    """Those of the tree in place of the box that stands for it in a run's life."""
    own = {box.id for box in picture.tree}
    return [*(box for box in picture.boxes if box.id not in own), *picture.tree]


def _ids(picture: Picture) -> dict[str, str]:
    ids = {box.id: f"{box.id}_" for box in picture.boxes}
    return ids | {box.id: f"agent{place}" for place, box in enumerate(picture.tree)}


def _box(name: str, box: Box, main: str) -> str:
    opened, closed = _SHAPES[box.kind]
    lines = [f"<b>{text(box.title)}</b>" if box.title else " "]
    lines += [text(box.note)] if box.note else []
    return f'{name}{opened}"{"<br/>".join([*lines, *_items(box.items, main)])}"{closed}'


def _arrow(ids: dict[str, str], arrow: Arrow, main: str) -> str:
    said = "<br/>".join(_items(arrow.items, main))
    line = ("<-->" if arrow.both else "-->") if arrow.sure else ("<-.->" if arrow.both else "-.->")
    label = f'|"{said}"|' if said else ""
    return f"{ids[arrow.source]} {line}{label} {ids[arrow.target]}"


def _items(items: Iterable[Item], main: str) -> list[str]:
    told = []
    for item in items:
        if not item.text:
            continue
        words = item.text if len(item.text) <= LONGEST else f"{item.text[: LONGEST - 1]}…"
        number = f" ({numbered(item.origin, main)})" if item.origin else ""
        told.append(f"{text(words)}{text(number)}{'' if item.sure else text(' (?)')}")
    return told


def text(words: str) -> str:
    """Words as a part of a quoted label. Letters and digits stay; signs become character references."""
    return "".join(_char(char, words[:place], words[place + 1 :]) for place, char in enumerate(words))


def _char(char: str, before: str, after: str) -> str:
    # Within a word signs mean nothing either, but for the dot of `1.`, which begins a list.
    inside = before[-1:].isalnum() and (after[:1].isalnum() or char in ".%_") and after[:1] != char
    if char.isalnum() or char in _PLAIN or (char in "_-.%" and inside and not before.isdigit()):
        return char
    if not char.isprintable():
        return " "
    return f"#{ord(char)};" if char.isascii() else char


def _comment(words: str) -> str:
    """Words for a line of their own, in which nothing can be escaped."""
    kept = "".join(char if char.isalnum() or char in " ,./-_" else " " for char in words)
    return " ".join(kept.split())[:LONGEST]
