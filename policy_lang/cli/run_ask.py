"""Asking at the terminal whether a tool call may run: yes, no, or with other arguments. One question at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from engine.core.state import NO_TIME
from engine.core.texts import duration
from policy_lang.cli.run_view import printable

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.run.approvals import ApprovalRequest

_TURNS = 3
"""Turns of the event loop between an event and the line that a view prints about it, and one to spare."""


def can_ask() -> bool:
    """Is somebody there: a terminal to read from, and one to ask on?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def asks(policy: Policy) -> list[str]:
    """The tools that a policy asks about."""
    return [rule.glob for rule in policy.tools if rule.ask]


class Terminal:
    """The approver of ``policy run``. ``paused`` keeps the live view off the screen while a question is open."""

    def __init__(self, paused: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> None:
        self.paused = paused
        self._one = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> bool | Mapping[str, Any]:
        async with self._one:
            for _ in range(_TURNS):  # what led to the question is shown before it: whoever shows that has a turn first
                await asyncio.sleep(0)
            with self.paused():
                try:
                    return await self._ask(request)
                except asyncio.CancelledError:
                    _say("\n")
                    raise

    async def _ask(self, request: ApprovalRequest) -> bool | Mapping[str, Any]:
        where = f"  [{request.because}]" if request.because else ""
        arguments = json.dumps(dict(request.arguments), default=str, ensure_ascii=False)
        _forget_typed()
        _say(f"\nAllow {printable(request.name)} {printable(arguments)} ?{where}\n")
        while True:
            _say(f"  y yes, n no, e edit{_left(request.until)}: ")
            line = await _line()
            answer = (line or "").strip().lower()
            if line is None or answer in ("n", "no"):
                return False
            if answer in ("y", "yes"):
                return True
            if answer in ("e", "edit") and (edited := await self._edited(request)) is not None:
                return edited

    async def _edited(self, request: ApprovalRequest) -> Mapping[str, Any] | None:
        """Arguments that the tool accepts; ``None`` to go back to the question."""
        while True:
            _say("  arguments as JSON (empty: back): ")
            line = await _line()
            if line is None or not line.strip():
                return None
            try:
                value = json.loads(line)
            except ValueError as exc:
                _say(f"  that is no JSON: {exc}\n")
                continue
            problem = request.problem(value) if isinstance(value, dict) else "they must be a JSON object"
            if not problem:
                return value  # type: ignore[no-any-return]
            _say(f"  {printable(problem)}\n")


def _left(until: int) -> str:
    if until >= NO_TIME:
        return ""
    return f" ({duration(max(until - round(time.time() * 1000), 0) // 1000 * 1000)} left)"


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _forget_typed() -> None:
    """Nobody has read this question yet: a line typed before, perhaps for one that expired, is no answer to it."""
    try:
        import termios
    except ImportError:  # Windows
        return
    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


async def _line() -> str | None:
    """The next line that is typed; ``None`` at the end of input. Whoever stops waiting takes no line away."""
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not typed.done():
            try:
                typed.set_result(os.read(fd, 64 * 1024))
            except OSError:
                typed.set_result(b"")

    try:
        loop.add_reader(fd, read)
    except NotImplementedError:  # event loops of Windows watch no terminals
        line = await asyncio.to_thread(sys.stdin.readline)
        return line or None
    try:
        data = await typed
    finally:
        loop.remove_reader(fd)
    return data.decode("utf-8", "replace") if data else None
