"""Telling a cancellation or an interrupt from outside from one that came from within."""

from __future__ import annotations

import asyncio
import signal
import threading


def from_outside() -> bool:
    """Inside ``except CancelledError``: was this task cancelled, or did something it awaited cancel itself?

    Code of a client, a tool or a hook may let a ``CancelledError`` of its own escape; that is a failure like any other.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def must_pass(exc: BaseException) -> bool:
    """Is this exception of a tool, a hook, a resolver or a client not to be kept from whoever runs the loop?

    A generator that is closed must be left, and Ctrl-C must end the program. But only Python's own handler
    raises ``KeyboardInterrupt``, and only in the main thread; elsewhere somebody has written ``raise``.
    """
    if isinstance(exc, KeyboardInterrupt):
        in_main = threading.current_thread() is threading.main_thread()
        return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(exc, GeneratorExit)
