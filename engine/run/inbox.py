"""Where everything that happens to a run meets: one queue, one order, one clock that never goes back."""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec import structs

from engine.core.events import AnyEvent


class Inbox:
    """A queue with one reader. ``last`` is the time of the latest event that was read (ms)."""

    __slots__ = ("_events", "_loop", "_waiter", "last")

    def __init__(self, loop: asyncio.AbstractEventLoop, last: int) -> None:
        self._loop = loop
        self._events: deque[AnyEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.last = last

    def __bool__(self) -> bool:
        return bool(self._events)

    def post(self, event: AnyEvent) -> None:
        """Add an event. Only from the event loop's own thread."""
        self._events.append(event)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def take(self) -> AnyEvent:
        """The oldest event, stamped no earlier than the one before. Raises ``IndexError`` if there is none."""
        event = self._events.popleft()
        if event.at < self.last:
            event = structs.replace(event, at=self.last)
        self.last = event.at
        return event

    def wait(self) -> asyncio.Future[None]:
        """Await this when there is no event: it is done when there is one."""
        self._waiter = self._loop.create_future()
        return self._waiter
