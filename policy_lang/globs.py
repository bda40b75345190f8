"""Patterns of tool names: ``*`` is any text, ``?`` any character, upper case matters.

Tells what two patterns have to do with each other; what a name matches is the engine's business.
"""

from __future__ import annotations

LONGEST = 500
"""Longer patterns are not looked into: no tool has such a name, and the time grows with both lengths."""


def covers(wide: str, narrow: str) -> bool:
    """Does every name that matches ``narrow`` match ``wide``? Where it is not seen at once, the answer is no."""
    if wide in ("*", narrow):
        return True
    if max(len(wide), len(narrow)) > LONGEST or not ("*" in wide or "?" in wide):
        return False
    reached = {0}
    for char in narrow:
        reached = {n for at in _free(wide, reached) for n in _after(wide, at, char)}
    return len(wide) in _free(wide, reached)


def _after(wide: str, at: int, char: str) -> tuple[int, ...]:
    """Where the wide pattern can stand behind one sign of the narrow one."""
    if at == len(wide):
        return ()
    if wide[at] == "*":
        return (at,)
    # What stands for any text, or for any character, is matched only by what does so too.
    same = char != "*" and (wide[at] == "?" or (wide[at] == char and char != "?"))
    return (at + 1,) if same else ()


def _free(pattern: str, places: set[int]) -> set[int]:
    """The places, and those behind any `*` that follows them at once."""
    found = set(places)
    for at in places:
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            found.add(at)
    return found


def overlap(one: str, other: str) -> bool:
    """Is there a name that matches both? Of very long patterns it is taken for granted."""
    if max(len(one), len(other)) > LONGEST:
        return True
    row = _free(one, {0})
    for char in other:
        if char == "*":
            row = set(range(min(row), len(one) + 1)) if row else row
        else:
            row = _free(one, {n for at in row for n in _one(one, at, char)})
    return len(one) in row


def _one(pattern: str, at: int, char: str) -> tuple[int, ...]:
    """Where a pattern can stand behind one character that the other pattern asks for."""
    if at == len(pattern):
        return ()
    if pattern[at] == "*":
        return (at,)
    return (at + 1,) if "?" in (pattern[at], char) or pattern[at] == char else ()
