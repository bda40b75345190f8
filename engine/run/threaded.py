"""Running a blocking function beside the event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from engine.run.results import described


async def in_thread(work: Callable[[], Any], name: str) -> Any:
    """What ``work`` returns, or raises.

    No pool: a function that blocks for ever would take a worker from all others, and a pool's threads keep the
    process alive at its exit. A daemon thread does neither. It cannot be interrupted: whoever stops waiting leaves it
    to end by itself.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(error: BaseException | None, value: Any) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(value)
        elif isinstance(error, StopIteration | KeyboardInterrupt):  # neither may pass through a future
            done.set_exception(RuntimeError(described(error)))
        else:
            done.set_exception(error)

    def target() -> None:
        error: BaseException | None = None
        value = None
        try:
            value = context.run(work)
        except BaseException as exc:  # delivered to whoever waits
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(deliver, error, value)

    threading.Thread(target=target, name=name, daemon=True).start()
    return await done
