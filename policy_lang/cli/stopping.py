"""How a command that serves hears that it is to stop."""

from __future__ import annotations

import asyncio
import signal


def stop_asked() -> asyncio.Event:
    """Set once Ctrl-C or SIGTERM has come. Where no signal handler can be set (Windows, not the main thread) it never
    is, and Ctrl-C is a ``KeyboardInterrupt``."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except (NotImplementedError, RuntimeError):
            break
    return stop
