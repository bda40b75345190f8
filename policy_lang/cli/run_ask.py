"""Asking at the terminal whether a tool call may run, or a limit may grow. One question at a time."""

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
from engine.core.texts import duration, quantity
from engine.core.vocabulary import RESOURCES
from policy_lang.cli.run_view import printable

if TYPE_CHECKING:
    from engine.core.policy import Policy
    from engine.run.approvals import Answer, ApprovalRequest

_TURNS = 3
"""Turns of the event loop between an event and the line that a view prints about it, and one to spare."""


def can_ask() -> bool:
    """Is somebody there: a terminal to read from, and one to ask on?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def asks(policy: Policy) -> list[str]:
    """The tools and limits that a policy asks about."""
    tools = [rule.glob for rule in policy.tools if rule.ask]
    return tools + [limit.id for limit in policy.limits if any(step.do == "ask" for step in limit.then)]


class Terminal:
    """The approver of ``policy run``. ``paused`` keeps the live view off the screen while a question is open.

    ``later``: an answer can be put off.
    """

    def __init__(
        self, paused: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext, *, later: bool = False
    ) -> None:
        self.paused = paused
        self._later = ", l later" if later else ""
        self._one = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> Answer:
        async with self._one:
            for _ in range(_TURNS):  # what led to the question is shown before it: whoever shows that has a turn first
                await asyncio.sleep(0)
            with self.paused():
                try:
                    return await self._ask(request)
                except asyncio.CancelledError:
                    _say("\n")
                    raise

    async def _ask(self, request: ApprovalRequest) -> Answer:
        where = f"  [{request.because}]" if request.because else ""
        _forget_typed()
        _say(f"\n{_question(request)} ?{where}\n")
        change = "a another amount" if request.kind == "extension" else "e edit"
        while True:
            _say(f"  y yes, n no, {change}{self._later}{_left(request.until)}: ")
            line = await _line()
            answer = (line or "").strip().lower()
            if line is None or answer in ("n", "no"):
                return False
            if answer in ("y", "yes"):
                return True
            if self._later and answer in ("l", "later"):
                return "later"
            if request.kind == "extension":
                if answer in ("a", "amount") and (amount := await self._amount(request)) is not None:
                    return amount
            elif answer in ("e", "edit") and (edited := await self._edited(request)) is not None:
                return edited

    async def _amount(self, request: ApprovalRequest) -> int | None:
        """How much is granted, in the limit's unit; ``None`` to go back to the question."""
        from policy_lang.quantities import Wrong, misfit, parse

        unit = RESOURCES[request.resource].unit
        while True:
            _say("  how much more (empty: back): ")
            line = await _line()
            if line is None or not line.strip():
                return None
            found = parse(line.strip())
            if isinstance(found, Wrong):
                _say(f"  {printable(found.message)}; {printable(found.help)}\n")
            elif found.dimension != unit:
                _say(f"  {printable(misfit(found, unit)[0])}\n")
            elif not 0 < found.value <= request.up_to:
                _say(f"  something up to {quantity(unit, request.up_to)}\n")
            else:
                return found.value

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


def _question(request: ApprovalRequest) -> str:
    if request.kind == "extension":
        unit = RESOURCES[request.resource].unit
        used, maximum, more = (quantity(unit, n) for n in (request.used, request.maximum, request.up_to))
        return f"Grant {more} more {request.resource} ({used} of {maximum} used)"
    arguments = json.dumps(dict(request.arguments), default=str, ensure_ascii=False)
    return f"Allow {printable(request.name)} {printable(arguments)}"


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
