"""Where the names that a file defines itself stand in it: its constants, and the agents that it speaks of.

Reads trees only, so that it knows them in a file with errors too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from policy_lang import tree
from policy_lang.language_server.cursor import walk

_IN_ACTS: Final[dict[str, int]] = {
    "compare": 2,
    "at_most": 0,
    "ends_within": 0,
    "expect_count": 1,
    "expect_retry": 0,
    "when_extended": 0,
    "when_fails": 1,
    "used": 0,
}
"""Which part of an event, a decision or a claim is a quantity."""

_AGENTS: Final = ("when_spawn", "when_child_ends")


_known: dict[type[tree.Node], tuple[str, ...]] = {}


def _fields(kind: type[tree.Node]) -> tuple[str, ...]:
    """The fields of a kind of node that may hold a constant: those that are a quantity, or a text for the model."""
    if kind not in _known:
        _known[kind] = tuple(_valued(kind))
    return _known[kind]


def _valued(kind: type[tree.Node]) -> Iterator[str]:
    hints = {name: str(hint) for each in kind.__mro__ for name, hint in vars(each).get("__annotations__", {}).items()}
    yield from (name for name in kind.fields if re.match(r"(Value|Phrase)\b", hints[name]))


def constants(file: tree.File) -> Iterator[tree.Name]:
    """Each word of a file that stands for a constant, those that define one included."""
    for node in walk(file):
        words: list[object]
        if isinstance(node, tree.Param | tree.Let):
            words = [node.name]
        elif isinstance(node, tree.Act):
            words = [node.parts[_IN_ACTS[node.kind]]] if node.kind in _IN_ACTS else []
        elif isinstance(node, tree.Threshold) and _switches(node):
            words = [node.percent]
        else:
            words = [node.__dict__[name] for name in _fields(type(node))]
        yield from (word for word in words if isinstance(word, tree.Name))


def _switches(node: tree.Threshold) -> bool:
    """Does it name a client?"""
    return isinstance(node.action, tree.Name) and node.action.text == "use"


def agents(file: tree.File) -> Iterator[tree.Text]:
    """Each text of a file that names an agent, those of its blocks included."""
    for node in walk(file):
        word = node.name if isinstance(node, tree.Agent) else None
        if isinstance(node, tree.Test):
            word = node.agent
        elif isinstance(node, tree.Act) and node.kind in _AGENTS:
            word = node.parts[0]
        if isinstance(word, tree.Text):
            yield word


def blocks(file: tree.File, agent: str) -> Iterator[tree.Text]:
    """The heads of an agent's blocks."""
    names = [statement.name for statement in file.statements if isinstance(statement, tree.Agent)]
    yield from (name for name in names if isinstance(name, tree.Text) and plain(name) == agent)


def plain(text: tree.Text) -> str:
    """A name in quotes without them. Names with escapes stay as they are written: they are compared, not shown."""
    return text.raw[1:-1]


def unread(file: tree.File) -> Iterator[tree.Broken]:
    """What of a file could not be understood."""
    return (node for node in walk(file) if isinstance(node, tree.Broken))
