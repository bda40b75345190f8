"""An event loop that runs what is ready in an order drawn by a seed, on a clock of its own.

Whatever could happen in another order does, for some seed: of all that is ready one thing is run, and then it is drawn
again. Nobody waits in real time: when nothing is ready, the clock goes to the next timer.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class Stuck(AssertionError):
    """Everything waits, and nothing will ever happen."""


class _Selector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """Never waits: time is the loop's own."""

    loop: ShuffledLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout is None:
            raise Stuck("everything waits for something that nobody does")
        if not found and timeout and timeout > 0:
            self.loop.now += timeout
        return list(found)


class ShuffledLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self, seed: int) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 1_000.0
        self._random = random.Random(seed)
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def clock(self) -> int:
        """Milliseconds."""
        return round(self.now * 1000)

    def _run_once(self) -> None:
        ready = self._ready  # type: ignore[attr-defined]
        later = list(ready)
        if len(later) > 1:
            one = later.pop(self._random.randrange(len(later)))
            ready.clear()
            ready.append(one)
            super()._run_once()  # type: ignore[misc]
            ready.extend(later)
        else:
            super()._run_once()  # type: ignore[misc]


def shuffled(seed: int, main: Callable[[ShuffledLoop], Coroutine[Any, Any, Any]]) -> Any:
    """Run ``main`` to its end on such a loop. What fails says with which seed."""
    loop = ShuffledLoop(seed)
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
