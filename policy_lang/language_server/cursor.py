"""What stands at a place of a tree: the nodes around it, outermost first."""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang import tree


def parts(node: tree.Node) -> Iterator[tree.Node]:
    """The nodes a node is made of, in their order."""
    for name in node.fields[1:]:
        value = node.__dict__[name]
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, tree.Node):
                yield part


def walk(node: tree.Node) -> Iterator[tree.Node]:
    """A node and all below it."""
    yield node
    for part in parts(node):
        yield from walk(part)


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
