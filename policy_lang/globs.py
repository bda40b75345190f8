"""Patterns of tool names: ``*`` is any text, ``?`` any character, upper case matters.

Tells what two patterns have to do with each other; what a name matches is the engine's business.

The places where a pattern can stand are kept as the bits of a number, so that a sign of the other pattern moves all of
them at once: a file may have thousands of pairs to compare.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

LONGEST = 200
"""Longer patterns are not looked into: no tool has such a name, and the time grows with both lengths."""


def covers(wide: str, narrow: str) -> bool:
    """Does every name that matches ``narrow`` match ``wide``? Where it is not seen at once, the answer is no."""
    if wide in ("*", narrow):
        return True
    if max(len(wide), len(narrow)) > LONGEST or not ("*" in wide or "?" in wide):
        return False
    if "?" not in wide:
        return _in_turn(wide.split("*"), narrow)
    places = _places(wide)
    stars = places.get("*", 0)
    reached = _free(1, stars)
    for char in narrow:
        # What stands for any text, or for any character, is matched only by what does so too.
        same = 0 if char == "*" else places.get("?", 0) | (places.get(char, 0) if char != "?" else 0)
        reached = _free((reached & stars) | (reached & same) << 1, stars)
        if not reached:
            return False
    return bool(reached & places[""])


def overlap(one: str, other: str) -> bool:
    """Is there a name that matches both? Of very long patterns it is taken for granted."""
    if max(len(one), len(other)) > LONGEST:
        return True
    if "*" in one and "*" in other and "?" not in one and "?" not in other:
        # Whatever one has between its stars, a star of the other takes: only how they begin and end can be at odds.
        return _alike(one.partition("*")[0], other.partition("*")[0], str.startswith) and _alike(
            one.rpartition("*")[2], other.rpartition("*")[2], str.endswith
        )
    places = _places(one)
    stars, end = places.get("*", 0), places[""]
    reached = _free(1, stars)
    for char in other:
        if char == "*":  # any place from the first one on
            reached = (2 * end - 1) & ~((reached & -reached) - 1)
            continue
        same = end - 1 & ~stars if char == "?" else places.get("?", 0) | places.get(char, 0)
        reached = _free((reached & stars) | (reached & same) << 1, stars)
        if not reached:
            return False
    return bool(reached & end)


def _in_turn(parts: list[str], text: str) -> bool:
    """Does a text begin with the first part, end with the last, and have the others between, one after another?"""
    first, *middle, last = parts
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _alike(one: str, other: str, has: Callable[[str, str], bool]) -> bool:
    return has(one, other) or has(other, one)


def _free(reached: int, stars: int) -> int:
    """The places, and those behind a `*` that stands there: it may be no text at all."""
    return reached | (reached & stars) << 1


@lru_cache(maxsize=4096)
def _places(pattern: str) -> dict[str, int]:
    """Where each sign stands in a pattern, as bits; the end of it under "". Several `*` in a row are one."""
    plain = re.sub(r"\*+", "*", pattern)
    places: dict[str, int] = {"": 1 << len(plain)}
    for at, char in enumerate(plain):
        places[char] = places.get(char, 0) | 1 << at
    return places
