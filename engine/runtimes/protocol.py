"""What every runtime offers to whoever wants runs on its engine: ``Runtime``. Each engine's module has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engine.core.decisions import Request
from engine.run.desk import given
from engine.run.errors import RunError
from engine.run.inputs import Input
from engine.run.result import OpenRequest, RunResult
from engine.run.timers import system_clock
from engine.run.tools import Tool
from engine.runtimes.records import Answered, Report, encode
from engine.store.protocol import Asked, RequestRecord


class Runtime(Protocol):
    """Runs on a durable engine, from any process that reaches it. All may raise ``RuntimeUnreachableError``."""

    async def start(self, input: Input, *, run_id: str | None = None, thread: str | None = None) -> str:
        """Begin a run; its id. A second start with the same id is the same run. Raises ``RunError``."""
        ...

    async def result(self, run_id: str) -> RunResult:
        """Wait for the end of a run. Raises ``RunError`` for an unknown run, and for one that no worker takes."""
        ...

    async def peek(self, run_id: str) -> Report | None:
        """Where a run stands that goes on; ``None`` for one that has ended. Raises ``RunError`` for an unknown run."""
        ...

    async def cancel(self, run_id: str, cause: str = "user") -> None:
        """Ask a run to end: what is in flight is cancelled, its conversation is closed. Returns at once."""
        ...

    async def answer(
        self,
        request_id: str,
        granted: bool = True,
        *,
        args: Mapping[str, Any] | None = None,
        amount: int | None = None,
        result: Any = None,
        by: str = "",
    ) -> None:
        """Answer something that a run asks. See ``Driver.answer``. Raises ``RunError`` where no such thing is asked."""
        ...

    async def aclose(self) -> None:
        """Let go of the engine."""
        ...


class RuntimeUnreachableError(RuntimeError):
    """The engine cannot be reached, or does not answer. The message says where it was looked for."""


def run_of(request_id: str) -> str:
    """The run that asks for something, from the id of the request. Raises ``RunError`` if it is none."""
    run, colon, _ = request_id.rpartition(":")
    if not run or not colon:
        raise RunError(f"{request_id!r} is no request: they are written RUN:CALL")
    return run


def answered(
    request: OpenRequest,
    tools: Mapping[str, Tool] | None,
    granted: bool,
    args: Mapping[str, Any] | None,
    amount: int | None,
    result: Any,
    by: str,
) -> Answered:
    """An answer as it travels, checked against what is asked. Raises ``RunError`` where it does not fit.

    ``tools``: ``None`` where they are not known, so that edited arguments are checked by the run alone.
    """
    if amount is not None and amount < 1:
        raise RunError(f"request {request.id}: {amount} is no amount to grant; to grant nothing, refuse")
    if amount is not None and (request.kind != "extension" or amount > request.up_to):
        most = f"at most {request.up_to} can be granted" if request.kind == "extension" else "it asks for no amount"
        raise RunError(f"request {request.id}: {most}")
    try:
        if tools is None and args is not None and request.kind == "tool":
            value: str | None = encode(dict(args))
        else:
            value = given(_record(request), tools or {}, args, result)
    except ValueError as exc:
        raise RunError(f"request {request.id}: {exc}") from None
    return Answered(request.id, system_clock(), "granted" if granted else "refused", amount or 0, value, by)


def _record(request: OpenRequest) -> RequestRecord:
    asked = Asked(Request(request.id.rpartition(":")[2], request.kind, tool=request.tool), request.arguments)
    return RequestRecord(request.id, request.run, asked, 0)
