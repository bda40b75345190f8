"""Where everything that happens to a run meets: one queue, one order, one clock that never goes back.

The inbox also carries the run's loop: a coroutine whose only wait is for the next event. Posting an
event to a waiting loop runs it at once, on the spot, until it waits again; there is no task in between
that would first have to be woken up. The loop itself never blocks, so whoever posts hardly notices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

from msgspec import structs

from engine.core.events import AnyEvent

T = TypeVar("T")


class Inbox(Generic[T]):
    """One run's events and the loop that reads them. Used from the event loop's own thread only.

    ``last`` is the time of the latest event that was read (ms), ``result`` the future of the loop's return value.
    """

    __slots__ = ("_events", "_reader", "_waiting", "last", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop, last: int) -> None:
        self._events: deque[AnyEvent] = deque()
        self._reader: Coroutine[Any, Any, T] | None = None
        self._waiting = False
        self.last = last
        self.result: asyncio.Future[T] = loop.create_future()

    def __bool__(self) -> bool:
        return bool(self._events)

    def serve(self, reader: Coroutine[Any, Any, T]) -> None:
        """Begin the loop. It may await nothing but ``wait``."""
        self._reader = reader
        self._go_on()

    def post(self, event: AnyEvent) -> None:
        """Something has happened."""
        self._events.append(event)
        if self._waiting:
            self._go_on()

    def post_all(self, events: Iterable[AnyEvent]) -> None:
        """All this has happened. None of it is read before all of it is here, so that it can still be dropped."""
        self._events.extend(events)
        if self._events and self._waiting:
            self._go_on()

    def fail(self, exc: BaseException) -> None:
        """Something that must not happen has happened: the loop ends with this exception."""
        if self._waiting and self._reader is not None:
            self._waiting = False
            self._reader.close()
            self.result.set_exception(exc)

    def leave(self) -> None:
        """Nothing will come here: the loop goes on from where it waits, and finds no event."""
        if self._waiting and not self._events:
            self._go_on()

    def take(self) -> AnyEvent:
        """The oldest event, stamped no earlier than the one before. Raises ``IndexError`` if there is none."""
        event = self._events.popleft()
        if event.at < self.last:
            event = structs.replace(event, at=self.last)
        self.last = event.at
        return event

    def drop(self, unwanted: Callable[[AnyEvent], bool]) -> None:
        """Forget events that nobody has read yet."""
        if self._events:
            self._events = deque(event for event in self._events if not unwanted(event))

    def wait(self) -> _Pause:
        """For the loop: await this where there is no event; behind it there is one, unless it is to ``leave``."""
        return _PAUSE

    def _go_on(self) -> None:
        assert self._reader is not None
        self._waiting = False
        try:
            self._reader.send(None)
        except StopIteration as end:
            self.result.set_result(end.value)
        except BaseException as exc:
            self.result.set_exception(exc)
            if isinstance(exc, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            self._waiting = True


class _Pause:
    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


_PAUSE = _Pause()
