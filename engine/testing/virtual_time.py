"""An event loop that runs what is ready in an order drawn by a seed, on a clock of its own.

Whatever could happen in another order does, for some seed: of all that is ready one thing is run, and then it is drawn
again. Nobody waits in real time: when nothing is ready, the clock goes to the next timer. What happens in threads or
other processes is outside of it, so tools must be coroutines; a server on this very loop, such as a rehearsed model,
may be talked to through sockets. It knows nothing of policies.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class Stuck(AssertionError):
    """Everything waits, and nothing will ever happen."""


_ON_THE_WAY = 0.001
"""Seconds of real time that what was written to a socket of this loop may take to its other end."""


class _Selector(selectors.DefaultSelector):
    """Never waits: time is the loop's own."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout != 0 and len(self.get_map()) > 1:  # one is the loop's own
            found = super().select(_ON_THE_WAY)
        if not found and timeout is None:
            raise Stuck("everything waits for something that nobody does (a tool in a thread? make it a coroutine)")
        if not found and timeout and timeout > 0:
            self.loop.now += timeout
        return list(found)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. ``now`` is its time in seconds."""

    def __init__(self, seed: int) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 1_000.0
        self.random = random.Random(seed)
        """Draws the order; whoever plays a part in the run may draw from it too."""
        super().__init__(selector)

    def time(self) -> float:
        """Seconds; the loop's timers go by it."""
        return self.now

    def clock(self) -> int:
        """Milliseconds, as a ``Driver`` wants its ``clock``."""
        return round(self.now * 1000)

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        later = list(ready)
        if len(later) > 1:
            one = later.pop(self.random.randrange(len(later)))
            ready.clear()
            ready.append(one)
            super()._run_once()  # type: ignore[misc]
            ready.extend(later)
        else:
            super()._run_once()  # type: ignore[misc]


def in_virtual_time(seed: int, main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run ``main`` to its end on such a loop, and return what it does. What fails says with which seed.

    Raises:
        Stuck: everything waits, and nothing will ever happen.
    """
    loop = VirtualLoop(seed)
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main(loop))
    except BaseException as exc:
        exc.add_note(f"the seed of the event loop was {seed}")
        raise
    finally:
        asyncio.set_event_loop(None)
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.close()
