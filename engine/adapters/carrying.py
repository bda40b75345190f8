"""Going through a session's acts: one way for hooks that wait, one for hooks that block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Act = TypeVar("Act")
Result = TypeVar("Result")


async def carried(acts: Generator[Act, Any, Result], perform: Callable[[Act], Awaitable[Any]]) -> Result:
    """What comes of a session's generator, each act performed by a coroutine. What ``perform`` raises goes through."""
    try:
        act = next(acts)
        while True:
            act = acts.send(await perform(act))
    except StopIteration as over:
        result: Result = over.value
        return result
    finally:
        acts.close()


def carried_sync(acts: Generator[Act, Any, Result], perform: Callable[[Act], Any]) -> Result:
    """The same where nothing may wait for an event loop."""
    try:
        act = next(acts)
        while True:
            act = acts.send(perform(act))
    except StopIteration as over:
        result: Result = over.value
        return result
    finally:
        acts.close()
