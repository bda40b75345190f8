"""How much room a text takes in a proportional font, and where it is broken. Knows characters and nothing else.

The widths are Helvetica's, which Arial and Liberation Sans share, with a little room for wider fonts.
"""

from __future__ import annotations

from typing import Final

from policy_lang.width import width as cells

_GROUPS: Final = {
    191: "'",
    222: "ijl",
    278: " !,./:;I[\\]ft",
    333: "()-`r",
    355: '"',
    389: "*",
    500: "cksvxyzJ",
    556: "#$0123456789?L_abdeghnopqu",
    584: "+<=>~",
    611: "FTZ",
    667: "&ABEKPSVXY",
    722: "CDHNRUw",
    778: "GOQ",
    833: "Mm",
    889: "%",
    944: "W",
    1015: "@",
}
_WIDTHS: Final = {char: thousandth / 1000 for thousandth, chars in _GROUPS.items() for char in chars}
_ROOM: Final = 1.06


def width(text: str, size: float) -> float:
    """Width in the unit of ``size``; of characters nobody measured, what a terminal gives them."""
    ems = sum(_WIDTHS[c] if c in _WIDTHS else 0.62 * cells(c) for c in text)
    return ems * size * _ROOM


def wrapped(text: str, size: float, most: float, lines: int = 3) -> list[str]:
    """A text in lines no wider than ``most``; what does not fit into so many of them is cut off with an ellipsis."""
    made = [""]
    for word in text.split():
        longer = f"{made[-1]} {word}".strip()
        if width(longer, size) <= most:
            made[-1] = longer
            continue
        if made[-1]:
            made.append("")
        while width(word, size) > most:
            cut = _fitting(word, size, most)
            made[-1:] = [word[:cut], ""]
            word = word[cut:]
        made[-1] = word
    if len(made) > lines:
        last = made[lines - 1]
        while last and width(f"{last}…", size) > most:
            last = last[:-1]
        made[lines - 1 :] = [f"{last.rstrip()}…"]
    return made


def _fitting(word: str, size: float, most: float) -> int:
    """How many characters of a word fit, at least one; no mark is parted from the character it belongs to."""
    cut = 1
    while cut < len(word) and width(word[: cut + 1], size) <= most:
        cut += 1
    while cut < len(word) and cells(word[cut]) == 0:
        cut += 1
    return cut
