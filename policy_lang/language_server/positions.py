"""Places in a text as an editor counts them, and as we do.

An editor counts lines from 0, ended by ``\\n``, ``\\r\\n`` or ``\\r``, and in a line the units of an encoding,
UTF-16 as a rule. We count code points from the start. Knows nothing of policies.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from lsprotocol import types

from policy_lang.source import Span

_LINE_END = re.compile(r"\r\n|\n|\r")
_WIDTHS = {"utf-8": (0x80, 0x800, 0x10000), "utf-16": (0x10000,), "utf-32": ()}
"""Where a code point takes one unit more."""


class Lines:
    """Turns the places of one text into each other. Never fails: what lies beyond the text is its nearest place.

    ``text`` is the editor's; ``skipped`` characters at its start, a byte order mark, are not in ours.
    """

    def __init__(self, text: str, encoding: str = "utf-16", skipped: int = 0) -> None:
        self.text = text
        self.skipped = skipped
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self._steps = _WIDTHS.get(encoding, _WIDTHS["utf-16"])
        self._plain = text.isascii()

    def units(self, text: str) -> int:
        """How long a text is for the editor."""
        if self._plain or text.isascii():
            return len(text)
        return len(text) + sum(ord(char) >= step for char in text for step in self._steps)

    def position(self, offset: int) -> types.Position:
        """The editor's place of one of our offsets."""
        at = min(max(offset + self.skipped, 0), len(self.text))
        line = bisect_right(self.starts, at) - 1
        return types.Position(line, self.units(self.text[self.starts[line] : at]))

    def offset(self, position: types.Position) -> int:
        """Our offset of an editor's place; inside of a character it is the place before it."""
        if position.line >= len(self.starts):
            return max(0, len(self.text) - self.skipped)
        start = self.starts[max(0, position.line)]
        line = self.text[start : self._end(max(0, position.line))]
        left, at = position.character, 0
        while at < len(line) and (left := left - self.units(line[at])) >= 0:
            at += 1
        return max(0, start + at - self.skipped)

    def _end(self, line: int) -> int:
        """Where a line ends, its line end left out."""
        if line + 1 == len(self.starts):
            return len(self.text)
        end = self.starts[line + 1] - 1
        return end - 1 if self.text[max(0, end - 1) : end + 1] == "\r\n" else end

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))

    def of(self, span: Span) -> types.Range:
        """The editor's range of a span of this text."""
        return self.range(span.start, span.end)

    def whole(self) -> types.Range:
        """All of the text, a byte order mark left out."""
        return self.range(0, len(self.text) - self.skipped)
