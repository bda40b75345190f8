"""What a picture shows, before anybody says where: boxes, arrows, and the lines of the policy behind each.

Plain data; knows neither policies nor any way of drawing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.policy import Origin


@dataclass(frozen=True, slots=True)
class Item:
    """A few words, and where the rule behind them stands (``None``: a default). ``sure``: some run comes to it."""

    text: str
    origin: Origin | None = None
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Box:
    """``kind`` is ``phase``, ``final``, ``wait``, ``good``, ``limit``, ``bad`` or ``agent``."""

    id: str
    kind: str
    title: str
    note: str = ""
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """``both``: a run comes back the same way."""

    source: str
    target: str
    items: tuple[Item, ...]
    both: bool = False

    @property
    def sure(self) -> bool:
        return any(item.sure for item in self.items)


@dataclass(frozen=True, slots=True)
class Picture:
    """``boxes`` and ``arrows`` are the life of a run, ``tree`` the agents below it: the first box is what they share.

    ``cut`` says why rules may be shown that no run comes to, and is empty where none are.
    """

    name: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    tree: tuple[Box, ...]
    cut: str

    def items(self) -> Iterator[Item]:
        """All of them, those of the life first."""
        for arrow in self.arrows:
            yield from arrow.items
        for box in (*self.boxes, *self.tree):
            yield from box.items

    @property
    def unsure(self) -> bool:
        """Is something shown of which nobody knows whether it happens?"""
        return any(not item.sure for item in self.items())
