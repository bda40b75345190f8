"""Applies the fixes that findings carry, and proves that they do what they claim.

Texts in, texts out. ``edits`` knows how edits go into a text, ``files`` what is found in files that change under way,
``rounds`` which fixes are made and in which order; nothing here writes to a disk or knows a terminal.
"""

from __future__ import annotations

from policy_lang.fixing.files import Files, Look
from policy_lang.fixing.rounds import Fixer, Refused, fixable

__all__ = ["Files", "Fixer", "Look", "Refused", "fixable", "fixed"]


def fixed(text: str, *, unsafe: bool = False) -> str:
    """A policy's text with all that can be fixed in it: what is safe, and with ``unsafe`` the guesses too.

    It can ask for no other file, and no settings count; ``Files`` and ``Fixer`` are for more than that.
    """
    from policy_lang.fixing.edits import BOM

    mark = BOM if text.startswith(BOM) else ""
    files = Files.of_text("<string>", text.removeprefix(BOM))
    Fixer(files, ["<string>"], unsafe=unsafe).run()
    return mark + files.text("<string>")
