"""Time in this process: the clock, and the one timer a run keeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.core.state import NO_TIME

Clock = Callable[[], int]
"""Milliseconds since 1970."""

# Wall time once, then the monotonic clock: a clock that is set while we run moves no deadline.
_OFFSET = time.time() - time.monotonic()
_LONGEST_MS = 24 * 3600 * 1000


def system_clock() -> int:
    """Milliseconds since 1970, never going back within a process."""
    return int((_OFFSET + time.monotonic()) * 1000)


class Alarm:
    """Rings at the earliest time it was set to, maybe once too early or too often: who is called looks at the clock.

    Setting it costs nothing while it already rings early enough, which is the rule: deadlines are far,
    and most effects end long before.
    """

    __slots__ = ("_at", "_clock", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._at = NO_TIME

    def set(self, at: int) -> None:
        """Ring at ``at`` (ms) at the latest."""
        if at >= self._at:
            return
        self.stop()
        self._at = at
        # One more millisecond: the event loop may wake a little early, and ours counts whole ones.
        wait = min(max(at - self._clock(), 0) + 1, _LONGEST_MS)
        self._handle = self._loop.call_later(wait / 1000, self._rang)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at = NO_TIME

    def _rang(self) -> None:
        self._handle = None
        self._at = NO_TIME
        self._ring()
