"""A run that is going on: await it, follow its events, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any

from engine.run.result import RunResult
from engine.run.streaming import AnyStreamEvent, Stream


class RunHandle:
    """``await handle`` gives the result; ``async for event in handle`` its events, if the run was started to stream.

    As ``async with`` it cancels the run when the block is left early. If whoever awaits it is cancelled, the run is
    cancelled properly first: its tools get the grace, its journal an end.
    """

    def __init__(
        self,
        run_id: str,
        result: asyncio.Future[RunResult],
        interrupt: Callable[[str], None],
        stream: Stream | None,
    ) -> None:
        self.run_id = run_id
        self._result = result
        self._interrupt = interrupt
        self._stream = stream

    @property
    def done(self) -> bool:
        """Has the run ended (or broken down)?"""
        return self._result.done()

    def cancel(self, cause: str = "user") -> None:
        """End the run: what is in flight is cancelled, the conversation is closed, the outcome is ``cancelled``.

        Returns at once; await the handle for the end. From any thread.
        """
        loop = self._result.get_loop()
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self._interrupt(cause)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._interrupt, cause)

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._wait().__await__()

    async def _wait(self) -> RunResult:
        try:
            return await asyncio.shield(self._result)
        except asyncio.CancelledError:
            if not self._result.done():
                self._interrupt("task")
                # A second cancellation leaves at once; the run still ends by itself, within its grace.
                await asyncio.wait({self._result})
            raise

    async def __aenter__(self) -> RunHandle:
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._result.done():
            self.cancel()
            await asyncio.wait({self._result})

    def __aiter__(self) -> AsyncIterator[AnyStreamEvent]:
        if self._stream is None:
            raise TypeError("this run was not started to stream: use `driver.stream(...)`")
        return self._stream.__aiter__()
