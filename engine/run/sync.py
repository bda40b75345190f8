"""The sync face: one event loop in a thread of its own, on which runs of any thread go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from engine.run.handle import RunHandle
from engine.run.result import RunResult

_CLOSING_S = 5.0


class Background:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="policy runs", daemon=True)
        self._thread.start()

    def result(self, start: Callable[[], RunHandle]) -> RunResult:
        """Start a run there and wait here. An interrupt cancels the run, and is raised after the run's end."""
        started: list[RunHandle] = []

        async def work() -> RunResult:
            started.append(start())
            return await started[0]

        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            for handle in started:
                handle.cancel()
            future.result()
            raise

    def close(self, last: Callable[[], Coroutine[Any, Any, None] | Awaitable[None]]) -> None:
        """Await ``last`` there, then end the loop and its thread."""

        async def work() -> None:
            await last()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result(_CLOSING_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
