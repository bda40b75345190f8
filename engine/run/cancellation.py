"""Telling a cancellation from outside from one that came from within."""

from __future__ import annotations

import asyncio


def from_outside() -> bool:
    """Inside ``except CancelledError``: was this task cancelled, or did something it awaited cancel itself?

    Code of a client, a tool or a hook may let a ``CancelledError`` of its own escape; that is a failure like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
