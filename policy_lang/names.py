"""Which known name a mistyped one was probably meant to be, and how a list of names reads in a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

_MOST_EDITS: Final = 10
"""More make another word, however long it is."""


def distance(a: str, b: str, limit: int) -> int:
    """Edits between two words (insert, delete, replace, swap neighbours), or ``limit + 1`` if there are more."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return last[-1]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name a typo away from ``word``: upper and lower case, ``-`` and ``_``, plural and word order forgiven.

    Equally near names are settled by the order of the alphabet, so the answer never depends on a set's order.
    """
    if not word:
        return None
    known = list(known)
    plain = _plain(word)
    allowed = min(max(1, len(plain) // 3), _MOST_EDITS)
    best: tuple[int, str] | None = None
    for name in sorted(known):
        other = _plain(name)
        nearer = best[0] - 1 if best else allowed
        if nearer < 0:
            break
        away = 0 if _words(plain) == _words(other) else distance(plain, other, nearer)
        if away <= nearer and away < max(len(plain), len(other)):
            best = (away, name)
    if best:
        return best[1]
    longer = [name for name in sorted(known) if min(len(name), len(plain)) > 3 and _prefix(plain, _plain(name))]
    return longer[0] if len(longer) == 1 else None


def _prefix(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def _plain(word: str) -> str:
    return word.casefold().replace("-", "_")


def _words(word: str) -> list[str]:
    return sorted(part.removesuffix("s") for part in word.split("_"))


def listed(items: Sequence[str], word: str = "or") -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def quoted(names: Iterable[str], word: str = "or") -> str:
    """The same for names, each in backticks."""
    return listed([f"`{name}`" for name in names], word)


def some(names: Collection[str], most: int = 5) -> str:
    """The first of many names, and how many more there are: for a line that a person reads."""
    shown = list(islice(names, most))
    more = len(names) - len(shown)
    return f"{', '.join(f'`{name}`' for name in shown)} and {more:,} more" if more else quoted(shown, "and")


def a(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"
