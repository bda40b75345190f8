"""Many patterns of tool names, asked for those that have to do with one: a file may have thousands.

What two patterns have to do with each other is decided by ``globs``; here only pairs are left out that cannot have
to do with each other, by the letters that they begin or end with or contain.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from policy_lang.globs import LONGEST, covers, overlap

T = TypeVar("T")

_WILD = re.compile(r"[*?\0]+")
"""Signs that stand for other text. The last is what a pattern that is taken as a name has in their place."""

_END = "\n"
"""Between names in one long text. No tool has it in its name, but nothing forbids it."""


_FEW = 32
"""The first so many are looked at one by one: mostly an index would take longer to make, and where many have to do with
one, who asks for the first is answered by one of these."""


_Known = dict[str, list[tuple[str, str, str]]]
"""A text, to the patterns with it; each with its beginning and its end."""


class _Wide(NamedTuple):
    """Patterns with signs: by the text they begin with, or by another text in them and its length."""

    begins: _Known
    texts: dict[int, _Known]


class Patterns(Generic[T]):
    """Patterns with what belongs to each, in an order that is kept."""

    def __init__(self, items: Iterable[tuple[str, T]]) -> None:
        numbered = list(enumerate(items))
        self._first = [item for _, item in numbered[:_FEW]]
        self._more: dict[str, list[tuple[int, T]]] = {}
        for number, (glob, item) in numbered[_FEW:]:
            self._more.setdefault(glob, []).append((number, item))

    @cached_property
    def _wide(self) -> _Wide:
        """Patterns with signs, found by what they begin with, or by the longest text in them where that is longer."""
        wide = _Wide({}, {})
        for glob in self._more:
            parts = _WILD.split(glob)
            if len(parts) > 1 and len(glob) <= LONGEST:
                text = max(parts, key=len)
                known = wide.begins if len(parts[0]) == len(text) else wide.texts.setdefault(len(text), {})
                known.setdefault(text, []).append((glob, parts[0], parts[-1]))
        return wide

    @cached_property
    def _begin(self) -> dict[str, list[tuple[str, str]]]:
        """Patterns by the text they begin with; each with its end."""
        found: dict[str, list[tuple[str, str]]] = {}
        for glob in self._more:
            parts = _WILD.split(glob)
            found.setdefault(parts[0], []).append((glob, parts[-1]))
        return found

    @cached_property
    def _begins(self) -> list[str]:
        return sorted(self._begin)

    def __bool__(self) -> bool:
        return bool(self._first or self._more)

    def covering(self, glob: str, *, itself: bool = True) -> Iterator[T]:
        """What belongs to patterns that match every name that this one matches, in order: each is looked at when it is
        asked for. ``itself``: also what belongs to this very pattern."""
        known: dict[str, bool] = {glob: itself}
        for each, item in self._first:
            if each not in known:
                known[each] = covers(each, glob)
            if known[each]:
                yield item
        if not self._more:
            return
        globs = {"*", glob} if len(glob) > LONGEST else {"*", glob, *self._perhaps_covering(glob)}
        pairs = [(*pair, each) for each in globs if known.get(each, True) for pair in self._more.get(each, ())]
        for _, item, each in sorted(pairs, key=lambda pair: pair[0]):
            if each not in known:
                known[each] = covers(each, glob)
            if known[each]:
                yield item

    def _perhaps_covering(self, glob: str) -> Iterator[str]:
        """Patterns of which the letters do not say that they do not cover this one."""
        parts = _WILD.split(glob)
        first, last = parts[0], parts[-1]
        for size in range(len(first) + 1):
            for wide, _, end in self._wide.begins.get(first[:size], ()):
                if last.endswith(end):
                    yield wide
        for size, known in self._wide.texts.items():
            for text in {part[at : at + size] for part in parts for at in range(len(part) - size + 1)}:
                for wide, begin, end in known.get(text, ()):
                    if first.startswith(begin) and last.endswith(end):
                        yield wide

    def overlapping(self, glob: str) -> Iterator[tuple[str, T]]:
        """The patterns that share a name with this one, each with what belongs to it, in order: each is looked at when
        it is asked for."""
        known: dict[str, bool] = {}
        for each, item in self._first:
            if each not in known:
                known[each] = overlap(each, glob)
            if known[each]:
                yield each, item
        parts = _WILD.split(glob)
        fitting: list[tuple[int, T, str]] = []
        for begin in self._beginning(parts[0]) if self._more else ():
            for each, end in self._begin[begin]:
                if known.get(each, True) and (parts[-1].endswith(end) or end.endswith(parts[-1])):
                    fitting += [(*pair, each) for pair in self._more[each]]
        for _, item, each in sorted(fitting, key=lambda pair: pair[0]):
            if each not in known:
                known[each] = overlap(each, glob)
            if known[each]:
                yield each, item

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
