"""How many cells of a terminal a text takes. Knows characters, nothing else."""

from __future__ import annotations


def width(text: str) -> int:
    """Cells of a text: wide characters take two, those that join the one before them none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, combining, east_asian_width

    # Marks that enclose (Me) and variation selectors have combining class 0; "Cf" are signs without a shape, such as
    # the joiner of emoji.
    return sum(
        0 if combining(char) or category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1
        for char in text
    )
