"""Many patterns of tool names, asked for those that have to do with one: a file may have thousands.

What two patterns have to do with each other is decided by ``globs``; here only pairs are left out that cannot have
to do with each other, by the letters that they begin or end with or contain.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

from policy_lang.globs import LONGEST, covers, overlap

T = TypeVar("T")

_WILD = re.compile(r"[*?\0]+")
"""Signs that stand for other text. The last is what a pattern that is taken as a name has in their place."""

_END = "\n"
"""Between names in one long text. No tool has it in its name, but nothing forbids it."""


_FEW = 6
"""So many are looked at one by one: an index of them would take longer to make."""


class Patterns(Generic[T]):
    """Patterns with what belongs to each, in an order that is kept."""

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        self._items: dict[str, list[tuple[int, T]]] = {}
        for number, (glob, item) in enumerate(items):
            self._items.setdefault(glob, []).append((number, item))

    @cached_property
    def _wide(self) -> dict[int, dict[str, list[tuple[str, str, str]]]]:
        """Patterns with signs, by the longest text in them and its length; each with its beginning and its end."""
        found: dict[int, dict[str, list[tuple[str, str, str]]]] = {}
        for glob in self._items:
            parts = _WILD.split(glob)
            if len(parts) > 1 and len(glob) <= LONGEST:
                text = max(parts, key=len)
                found.setdefault(len(text), {}).setdefault(text, []).append((glob, parts[0], parts[-1]))
        return found

    @cached_property
    def _begin(self) -> dict[str, list[tuple[str, str]]]:
        """All patterns, by the text they begin with; each with its end."""
        found: dict[str, list[tuple[str, str]]] = {}
        for glob in self._items:
            parts = _WILD.split(glob)
            found.setdefault(parts[0], []).append((glob, parts[-1]))
        return found

    @cached_property
    def _begins(self) -> list[str]:
        return sorted(self._begin)

    def __bool__(self) -> bool:
        return bool(self._items)

    def covering(self, glob: str) -> list[T]:
        """What belongs to patterns that match every name that this one matches, in order."""
        if len(self._items) <= _FEW:
            return self._in_order(other for other in self._items if covers(other, glob))
        return self._in_order({glob, "*"} if len(glob) > LONGEST else {glob, "*", *self._covering(glob)})

    def _in_order(self, globs: Iterable[str]) -> list[T]:
        pairs = [pair for each in globs for pair in self._items.get(each, ())]
        return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]

    def _covering(self, glob: str) -> Iterator[str]:
        parts = _WILD.split(glob)
        for size, known in self._wide.items():
            texts = {part[at : at + size] for part in parts for at in range(len(part) - size + 1)}
            for text in texts:
                for wide, begin, end in known.get(text, ()):
                    if parts[0].startswith(begin) and parts[-1].endswith(end) and covers(wide, glob):
                        yield wide

    def overlapping(self, glob: str) -> Iterator[tuple[str, list[T]]]:
        """The patterns that share a name with this one, each with what belongs to it, those that come first first."""
        if len(self._items) <= _FEW:
            few = ((other, pairs) for other, pairs in self._items.items() if overlap(other, glob))
            yield from ((other, [item for _, item in pairs]) for other, pairs in few)
            return
        parts = _WILD.split(glob)
        fitting: list[str] = []
        for begin in self._beginning(parts[0]):
            for other, end in self._begin[begin]:
                if parts[-1].endswith(end) or end.endswith(parts[-1]):
                    fitting.append(other)
        for other in sorted(fitting, key=lambda other: self._items[other][0][0]):
            if overlap(other, glob):
                yield other, [item for _, item in self._items[other]]

    def _beginning(self, text: str) -> Iterator[str]:
        """Beginnings that go with one: parts of it, and those that it is a part of."""
        yield from (text[:size] for size in range(len(text)) if text[:size] in self._begin)
        at = bisect_left(self._begins, text)
        while at < len(self._begins) and self._begins[at].startswith(text):
            yield self._begins[at]
            at += 1


class Names:
    """Plain names, asked whether a pattern matches one of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(dict.fromkeys(names))
        self._known = frozenset(self._names)
        self._odd = [name for name in self._names if _END in name]
        self._text = _END.join(("", *self._names, ""))

    def has_match(self, glob: str) -> bool:
        if glob in self._known or (glob == "*" and self._names):
            return True
        parts = _WILD.split(glob)
        return len(parts) > 1 and any(covers(glob, name) for name in self._containing(max(parts, key=len)))

    def _containing(self, part: str) -> Iterator[str]:
        yield from self._odd if part else self._names
        at = self._text.find(part) if part else -1
        while at >= 0:
            start, end = self._text.rfind(_END, 0, at) + 1, self._text.find(_END, at)
            yield self._text[start:end]
            at = self._text.find(part, end)
