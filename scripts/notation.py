"""The grammar as people read it: `grammars/policy.lark` to lines such as ``retry N [every A..B [jitter]]``.

Words stand as they are written, CAPITALS for what is filled in. ``[x]`` may be left out, ``x…`` is there once or more,
``(x | y)`` is one of them. It knows how a grammar is written, and which names the reader gets for its terminals; what a
statement means is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Word(NamedTuple):
    text: str


class Name(NamedTuple):
    """A rule or a terminal."""

    text: str


class All(NamedTuple):
    parts: tuple[Node, ...]


class One(NamedTuple):
    """One of several; each has the name that the grammar gives it behind ``->``, or none."""

    parts: tuple[tuple[Node, str], ...]


class Maybe(NamedTuple):
    part: Node


class Many(NamedTuple):
    part: Node
    least: int


Node = Word | Name | All | One | Maybe | Many

_TOKEN = re.compile(r'\s*(?:(//[^\n]*)|"([^"]*)"|(->)|([A-Za-z_]\w*)|(\d+)|([()\[\]|*+?]))')
_RULE = re.compile(r"^[?!]*(\w+)(?:\.\d+)?:((?:.*)(?:\n[ \t]+\|.*)*)", re.MULTILINE)


def rules(grammar: str) -> dict[str, Node]:
    """Every rule of a grammar; terminals are left out."""
    plain = "\n".join(line.split("//")[0] for line in grammar.splitlines())
    found = {name: body for name, body in _RULE.findall(plain) if name.strip("_").islower()}
    return {name: _Reader(body).node() for name, body in found.items()}


class _Reader:
    """One right-hand side."""

    def __init__(self, text: str) -> None:
        self.tokens = [match.groups() for match in _TOKEN.finditer(text)]
        self.at = 0

    def node(self) -> Node:
        parts = [self._named()]
        while self._take("|"):
            parts.append(self._named())
        return parts[0][0] if len(parts) == 1 and not parts[0][1] else One(tuple(parts))

    def _named(self) -> tuple[Node, str]:
        found: list[Node] = []
        while (part := self._part()) is not None:
            found.append(part)
        name = ""
        if self._peek()[2]:
            self.at += 1
            name = self._peek()[3] or ""
            self.at += 1
        return (found[0] if len(found) == 1 else All(tuple(found))), name

    def _part(self) -> Node | None:
        _, literal, arrow, name, _, sign = self._peek()
        if arrow or sign in ("|", ")", "]") or (literal is None and name is None and sign is None):
            return None
        self.at += 1
        part: Node
        if sign in ("(", "["):
            part = self.node()
            self.at += 1
            part = Maybe(part) if sign == "[" else part
        else:
            part = Word(literal) if literal is not None else Name(name or "")
        if self._take("*"):
            return Many(part, 0)
        if self._take("+"):
            return Many(part, 1)
        return Maybe(part) if self._take("?") else part

    def _peek(self) -> Sequence[str | None]:
        return self.tokens[self.at] if self.at < len(self.tokens) else (None,) * 6

    def _take(self, sign: str) -> bool:
        if self._peek()[5] == sign:
            self.at += 1
            return True
        return False


class Writer:
    """Writes productions of a grammar for people.

    - ``slots``: for a production by its name, what a reader sees for each leaf in it, in order
    - ``leaves``: what they see for a leaf where nothing is said
    - ``signs``: terminals with one spelling
    - ``titles``: rules that are shown by a name, and explained elsewhere
    - ``narrowed``: the lines of rules that say less than the grammar would allow

    Other rules are written out in place. ``seen`` collects every rule that was written.
    """

    def __init__(
        self,
        grammar: Mapping[str, Node],
        slots: Mapping[str, Sequence[str]],
        leaves: Mapping[str, str],
        signs: Mapping[str, str],
        titles: Mapping[str, str],
        narrowed: Mapping[str, Sequence[str]],
    ) -> None:
        self.grammar, self.slots, self.leaves, self.narrowed = grammar, slots, leaves, narrowed
        self.fixed = {**signs, **titles}
        self.titles = titles
        self.seen: set[str] = set()

    def alternatives(self, rule: str) -> list[str]:
        """A rule, one line for each of its alternatives; those that are rules with alternatives are opened too."""
        self.seen.add(rule)
        if rule in self.narrowed:
            self.seen |= _named(self.grammar[rule])
            return list(self.narrowed[rule])
        node = self.grammar[rule]
        lines: list[str] = []
        for part, name in node.parts if isinstance(node, One) else ((node, ""),):
            if isinstance(part, Name) and part.text == "broken":
                continue
            if isinstance(part, Name) and not name and part.text in self.grammar and part.text not in self.titles:
                lines += self.alternatives(part.text)
            else:
                lines.append(self._production(part, name or rule))
        return lines

    def block(self, rule: str) -> tuple[str, str]:
        """The first line of a block, up to its brace, and the rule of its lines."""
        self.seen.add(rule)
        node = self.grammar[rule]
        assert isinstance(node, All)
        brace = next(n for n, part in enumerate(node.parts) if part == Name("_LB"))
        lines = next(part for part in node.parts if isinstance(part, Many))
        assert isinstance(lines.part, All)
        inner = lines.part.parts[0]
        assert isinstance(inner, Name)
        return self._production(All(node.parts[:brace]), rule), inner.text

    def _production(self, node: Node, name: str) -> str:
        left = iter(self.slots.get(name, ()))
        text = self._write(node, left)
        if rest := list(left):
            raise ValueError(f"{name}: nothing is left to be called {rest}")
        return text

    def _write(self, node: Node, slots: Iterator[str]) -> str:
        match node:
            case Word(text):
                return text
            case Name(text):
                return self._name(text, slots)
            case Maybe(part):
                inner = self._write(part, slots)
                return f"[{inner[1:-1] if inner.startswith('(') and inner.endswith(')') else inner}]"
            case Many(part, least):
                inner = self._write(part, slots)
                if least and " " not in inner:
                    return f"{inner}…"
                return f"{inner} [{inner}]…" if least else f"[{inner}]…"
            case One(parts):
                written = (self._write(part, self._of(name, slots)) for part, name in parts)
                return f"({' | '.join(written)})"
            case All(parts):
                return (
                    " ".join(filter(None, (self._write(part, slots) for part in parts)))
                    .replace(" [,", "[,")
                    .replace(" .. ", "..")
                )

    def _name(self, name: str, slots: Iterator[str]) -> str:
        if name in self.fixed:
            return self.fixed[name]
        if name in self.leaves:
            return next(slots, None) or self.leaves[name]
        self.seen.add(name)
        return self._write(self.grammar[name], self._of(name, slots))

    def _of(self, name: str, slots: Iterator[str]) -> Iterator[str]:
        """The names that a production has itself, or else those of the one it is written out in."""
        return iter(self.slots[name]) if name in self.slots else slots


def _named(node: Node) -> set[str]:
    """The rules and terminals that a production names."""
    match node:
        case Word():
            return set()
        case Name(text):
            return {text}
        case Maybe(part) | Many(part):
            return _named(part)
        case One(parts):
            return set().union(*(_named(part) for part, _ in parts))
        case All(parts):
            return set().union(*map(_named, parts))
