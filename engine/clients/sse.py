"""Server-sent events from pieces of bytes, as they come off the network.

Only the format: no HTTP, no JSON, no meaning. Libraries for this read unbounded lines; this one
is fed by a reader that counts bytes, and its own buffer never holds more than one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Event(NamedTuple):
    """One event: its name (``message`` if the server gave none) and its data lines, joined."""

    name: str
    data: bytes


class EventParser:
    """Feed it bytes in any cut; it yields whole events. A half event at the end is dropped."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._name = b""
        self._data: list[bytes] = []
        self._started = False
        self._after_cr = False
        self.unfinished = 0
        """Bytes held for an event that has not ended yet."""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        if self._after_cr and chunk:  # a \r\n cut in two is one line end
            self._after_cr = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        lines = _lines(chunk)
        if not lines:
            return
        self._pending.append(lines[0])
        self.unfinished += len(chunk)
        if len(lines) == 1:
            return
        lines[0] = b"".join(self._pending)
        self._pending = [lines.pop()]
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event

    def _line(self, line: bytes) -> Event | None:
        if not self._started:
            self._started = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._end()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None

    def _end(self) -> Event | None:
        name, data, self.unfinished = self._name, self._data, 0
        self._name, self._data = b"", []
        if not data:
            return None
        return Event(name.decode("utf-8", "replace") or "message", b"\n".join(data))


def _lines(chunk: bytes) -> list[bytes]:
    """Split at \\n, \\r\\n and \\r; the last item is the unfinished line (empty after a line end)."""
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return chunk.split(b"\n")
