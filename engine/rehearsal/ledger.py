"""Everything a rehearsal server received, and how each request was answered. Bounded in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from engine.core.messages import Usage

MOST_ENTRIES: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024
_SECRET: Final = frozenset(["authorization", "x-api-key", "api-key", "cookie", "proxy-authorization", "x-goog-api-key"])


class Entry(Struct, kw_only=True):
    """One request. Fields about the answer are filled in when it has been given."""

    number: int
    at_ms: int
    """Milliseconds since 1970."""
    wire: str
    path: str
    headers: dict[str, str]
    """Names in lower case; the value of a secret one is ``***``."""
    body: Any
    model: str = ""
    stream: bool = False
    offered: tuple[str, ...] = ()
    """The tools the model could have called: declared and not forbidden."""
    forced: str | None = None
    """The tool it had to call, ``*`` for any of them, ``None`` if it was free."""
    status: int | None = None
    """The HTTP status sent, ``None`` if the connection was closed without one."""
    reply: int | None = None
    """The number of the script's reply, ``None`` if none answered."""
    answered: str = ""
    usage: Usage | None = None
    """The tokens reported to the client."""
    problem: str | None = None
    """Why a real provider would refuse the request; it was answered with status 400."""
    client_left: bool = False
    duration_ms: int = 0


class Ledger:
    """The latest entries, oldest first, and totals over all of them."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0
        self.total = 0
        """Requests received, those no longer kept included."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return (entry for entry, _ in tuple(self._entries))

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index][0]

    def add(self, entry: Entry, size: int) -> None:
        """Keep ``entry``, whose body took ``size`` bytes; the oldest go when there are too many."""
        self._entries.append((entry, size))
        self._bytes += size
        self.total += 1
        while len(self._entries) > 1 and (len(self._entries) > MOST_ENTRIES or self._bytes > MOST_BYTES):
            self._bytes -= self._entries.popleft()[1]

    def clear(self) -> None:
        """Forget all entries, and begin to count anew."""
        self._entries.clear()
        self._bytes = 0
        self.total = 0

    @property
    def problems(self) -> list[str]:
        """Why requests were refused as invalid, in order; empty if every transcript was a valid one."""
        return [entry.problem for entry in self if entry.problem is not None]

    @property
    def usage(self) -> Usage:
        """The tokens reported to clients, added up."""
        totals: dict[str, int] = dict.fromkeys(Usage.__struct_fields__, 0)
        for entry in self:
            for field in totals:
                totals[field] += getattr(entry.usage, field, 0)
        return Usage(**totals)

    def to_json(self) -> bytes:
        """UTF-8: an object with ``total`` (requests ever), ``usage`` and ``requests`` (the entries kept)."""
        return msgspec.json.encode({"total": self.total, "usage": self.usage, "requests": list(self)})


def without_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with ``***`` in the place of keys and cookies."""
    return {name: "***" if name in _SECRET else value for name, value in headers.items()}
