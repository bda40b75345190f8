"""Source files: their text, where things stand in it, and how a file is read from disk.

Knows bytes, lines and columns. It must not know the language, nor how a finding is shown.
"""

from __future__ import annotations

import os
import stat
import time
from bisect import bisect_right
from typing import BinaryIO, NamedTuple

MAX_BYTES = 1 << 20
"""A policy file larger than this is refused."""

_PATIENCE = 1.0
"""Seconds in which whoever writes into a pipe must have begun."""


class Source:
    """One text with a name. Offsets count code points from 0; lines and columns count from 1."""

    __slots__ = ("_starts", "name", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self._starts: list[int] | None = None

    def __repr__(self) -> str:
        return f"Source({self.name!r})"

    @property
    def starts(self) -> list[int]:
        """Offset of the first character of each line."""
        if self._starts is None:
            starts, at = [0], self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
            self._starts = starts
        return self._starts

    def line_of(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = self.line_of(offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of a line, without its end."""
        starts = self.starts
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].removesuffix("\r")

    def line_start(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        end = self.text.find("\n", offset)
        end = len(self.text) if end < 0 else end
        return end - 1 if end > offset and self.text[end - 1] == "\r" else end

    def next_line(self, offset: int) -> int:
        """Where the line after that of an offset begins, or the text ends."""
        return self.text.find("\n", offset) + 1 or len(self.text)


class Span(NamedTuple):
    """A stretch of one source, from ``start`` up to but not including ``end``."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.source.line_of(self.start)

    def head(self, words: int = 1) -> Span:
        """Its first words, as far as it has that many."""
        end = self.start
        for word in self.text.split(None, words)[:words]:
            end = self.source.text.index(word, end) + len(word)
        return Span(self.source, self.start, end)


class Unreadable(Exception):
    """Why a file could not become a ``Source``: a finding's code, what is wrong, and what to do."""

    def __init__(self, code: str, message: str, help: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.help = code, message, help


def read(path: str, name: str) -> Source:
    """Read the file at ``path``, to be called ``name`` in findings. Raises ``Unreadable``."""
    return decode(contents(path, name), name)


def contents(path: str, name: str) -> bytes:
    """The bytes of a file; of a large one as many as are needed to refuse it. Raises ``Unreadable``."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            data = file.read(MAX_BYTES + 1)
            if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                data = _awaited(file, name)
            return data
    except FileNotFoundError:
        help = "`/dev/stdin` is the standard input" if path == "-" else ""
        raise Unreadable("P401", f"`{name}` does not exist", help) from None
    except IsADirectoryError:
        raise Unreadable("P402", f"`{name}` is a directory, not a policy file") from None
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        if os.path.isdir(path):  # where opening a directory is a matter of permission
            raise Unreadable("P402", f"`{name}` is a directory, not a policy file") from None
        reason = (getattr(problem, "strerror", None) or "not a valid path").lower()
        raise Unreadable("P401", f"`{name}` cannot be read: {reason}") from None


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe too, without waiting for somebody to write into it."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(handle, True)
    return handle


def _awaited(pipe: BinaryIO, name: str) -> bytes:
    """What comes through a pipe whose writer may be just about to open it."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(0.01)
        if data := pipe.read(MAX_BYTES + 1):
            return data
    raise Unreadable("P401", f"`{name}` cannot be read: it is a pipe, and nobody writes into it")


def decode(data: bytes, name: str) -> Source:
    """Turn the bytes of a file into a source. Raises ``Unreadable``."""
    if len(data) > MAX_BYTES:
        raise Unreadable(
            "P403",
            f"`{name}` is larger than 1 MiB",
            "a policy is short; move prices or tool rules to files of their own and `import` them",
        )
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("P404", f"`{name}` is UTF-16, not UTF-8", "save the file as UTF-8")
    if b"\r" in data and b"\n" not in data:
        raise Unreadable(
            "P404",
            f"`{name}` has lines that end with a carriage return alone",
            "save the file with the line ends LF or CRLF",
        )
    if b"\0" in data:
        raise Unreadable("P404", f"`{name}` is not a text file: it contains a NUL byte at offset {data.index(0)}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise Unreadable(
            "P404",
            f"`{name}` is not UTF-8: line {line} contains the byte 0x{data[problem.start]:02x}",
            "save the file as UTF-8",
        ) from None
    return Source(name, text)
