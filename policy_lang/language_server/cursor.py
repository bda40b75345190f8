"""What stands at a place of a tree: the nodes around it, outermost first."""

from __future__ import annotations

from policy_lang import tree
from policy_lang.tree import parts, walk


def around(file: tree.File, offset: int) -> list[tree.Node]:
    """The nodes that an offset lies in or touches the end of, outermost first, the file left out."""
    found: list[tree.Node] = []
    node: tree.Node | None = file
    while node is not None:
        at = [part for part in parts(node) if part.span.start <= offset <= part.span.end]
        # between two that touch each other, the one that begins here
        node = at[-1] if at else None
        if node is not None:
            found.append(node)
    return found


__all__ = ["around", "parts", "walk"]
