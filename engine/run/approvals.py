"""Asking a person whether a tool call may run: the host's own function answers for them.

Never raises (but for a cancellation), and fails closed: an exception, an answer of another kind and edited
arguments that the tool does not accept are refusals, told in words to whoever follows the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_core import to_json

from engine.core.canonical import arguments_key
from engine.core.events import ApprovalGiven
from engine.core.messages import Message
from engine.run.cancellation import from_outside
from engine.run.effects import Approval
from engine.run.host import Host
from engine.run.results import brief, clean, described
from engine.run.threaded import in_thread
from engine.run.tools import ArgumentError, Tool


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One tool call that waits for a person. ``arguments`` are validated, ``raw`` is the JSON the model sent.

    ``until`` is the end of the time to answer (ms since 1970, ``engine.core.state.NO_TIME``: none), ``because`` the
    rule of the policy that asks. Several requests may be open at the same time.
    """

    run: str
    thread: str | None
    id: str
    name: str
    arguments: Mapping[str, Any]
    raw: str
    until: int
    because: str
    _tool: Tool | None = field(default=None, repr=False, compare=False)

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """Why the tool would not accept these arguments; empty if it would."""
        try:
            _accepted(self._tool, arguments)
        except ArgumentError as exc:
            return brief(exc)
        return ""


Answer = bool | Literal["granted", "refused"] | Mapping[str, Any]
"""Yes or no, or the edited arguments with which the call may run."""

Approver = Callable[[ApprovalRequest], "Answer | Awaitable[Answer]"]
"""A plain function runs in a thread of its own, so it may block until a person has answered."""


async def ask(
    host: Host,
    effect: Approval,
    run: str,
    thread: str | None,
    now: Callable[[], int],
    put: Callable[[Message], str],
    prepared: dict[str, dict[str, Any]],
) -> tuple[ApprovalGiven, str]:
    """The answer as an event, and in words what was wrong with it (empty if nothing was).

    ``prepared`` has the validated arguments of proposed calls by id, and gets the edited ones.
    """
    decision, call = effect.decision, effect.call

    def refused(problem: str = "") -> tuple[ApprovalGiven, str]:
        return ApprovalGiven(now(), decision.id, "refused"), problem

    tool, approver = host.tools.get(call.name), host.approver
    assert approver is not None
    try:
        arguments = prepared.get(decision.id) or (tool.read(call.arguments) if tool else {})
        request = ApprovalRequest(
            run, thread, decision.id, call.name, arguments, call.arguments, decision.until, decision.because, tool
        )
        answer = await _answer(approver, request)
        if isinstance(answer, Mapping):
            accepted, raw = _accepted(tool, answer)
            prepared[decision.id] = accepted
            ref = put(Message("user", raw))
            return ApprovalGiven(now(), decision.id, "granted", arguments_key(raw), ref), ""
    except asyncio.CancelledError as exc:
        if from_outside():
            raise
        return refused(f"the approver was cancelled: {exc}")
    except ArgumentError as exc:
        return refused(f"the edited arguments of {call.name} are not valid: {brief(exc)}")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        return refused(f"the approver failed: {described(exc)}")
    if answer is True or answer == "granted":
        return ApprovalGiven(now(), decision.id, "granted"), ""
    if answer is False or answer == "refused":
        return refused()
    return refused(f"the approver returned a value of type `{type(answer).__name__}`: that is no answer")


async def _answer(approver: Approver, request: ApprovalRequest) -> Any:
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(getattr(approver, "__call__", None)):  # noqa: B004
        answer: Any = approver(request)
    else:
        answer = await in_thread(lambda: approver(request), f"approval {request.id}")
    return await answer if inspect.isawaitable(answer) else answer


def _accepted(tool: Tool | None, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments as the tool takes them, and as JSON. Raises ``ArgumentError``."""
    try:
        raw = clean(to_json(dict(arguments)).decode("utf-8"))
    except Exception as exc:
        raise ArgumentError(f"they are not JSON: {brief(exc)}") from None
    if tool is None:
        raise ArgumentError("there is no such tool any more")
    return tool.read(raw), raw
