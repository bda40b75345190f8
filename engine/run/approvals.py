"""Asking a person whether a tool call may run, or a limit may grow: the host's own function answers for them.

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
from engine.core.decisions import Request
from engine.core.events import ApprovalGiven, ExtensionAnswered
from engine.core.messages import Message
from engine.run.cancellation import from_outside
from engine.run.effects import Approval
from engine.run.host import Host
from engine.run.results import brief, clean, described
from engine.run.threaded import in_thread
from engine.run.tools import ArgumentError, Tool

Answered = ApprovalGiven | ExtensionAnswered

Verdict = Literal["granted", "refused", "expired", "nobody"]


class Later(Exception):
    """Raised by an approver that does not answer now: with a journal, somebody can do so later, from anywhere."""


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Something that waits for a person.

    ``kind`` is ``tool`` for a tool call: ``arguments`` are validated, ``raw`` is the JSON the model sent. It is
    ``extension`` for more of the limit ``id``: of its ``resource`` ``used`` of ``maximum`` are used, and at most
    ``up_to`` more can be granted (in its unit: counts, tokens, micro-dollars). ``name`` is the tool or the resource.

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
    kind: Literal["tool", "extension"] = "tool"
    resource: str = ""
    used: int = 0
    maximum: int = 0
    up_to: int = 0
    _tool: Tool | None = field(default=None, repr=False, compare=False)

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """Why the tool would not accept these arguments; empty if it would."""
        try:
            accepted(self._tool, arguments)
        except ArgumentError as exc:
            return brief(exc)
        return ""


Answer = bool | int | Literal["granted", "refused", "later", "nobody"] | Mapping[str, Any]
"""Yes or no; the edited arguments with which a call may run; how much more of a limit; or that it is not answered now
(``later``), or that nobody is there to do so (``nobody``)."""

Approver = Callable[[ApprovalRequest], "Answer | Awaitable[Answer]"]
"""A plain function runs in a thread of its own, so it may block until a person has answered."""


def answer_event(
    request: Request,
    verdict: Verdict,
    at: int,
    *,
    amount: int = 0,
    args: str | None = None,
    ref: str = "",
    when: int = 0,
) -> Answered:
    """An answer as the event that a run takes it up with. ``when`` (ms) it was given, if that was before ``at``."""
    if request.kind == "extension":
        return ExtensionAnswered(at, request.id, verdict, amount, when)
    return ApprovalGiven(at, request.id, verdict, args, ref, when)


def edited(
    request: Request,
    tool: Tool | None,
    arguments: Mapping[str, Any],
    at: int,
    put: Callable[[Message], str],
    prepared: dict[str, dict[str, Any]],
    when: int = 0,
) -> Answered:
    """A grant with other arguments. ``prepared`` gets them as the tool takes them. Raises ``ArgumentError``."""
    prepared[request.id], raw = accepted(tool, arguments)
    return answer_event(request, "granted", at, args=arguments_key(raw), ref=put(Message("user", raw)), when=when)


async def ask(
    host: Host,
    effect: Approval,
    run: str,
    thread: str | None,
    now: Callable[[], int],
    put: Callable[[Message], str],
    prepared: dict[str, dict[str, Any]],
) -> tuple[Answered | None, str]:
    """The answer as an event, ``None`` for ``later``; and in words what was wrong with it (empty if nothing was).

    ``prepared`` has the validated arguments of proposed calls by id, and gets the edited ones.
    """
    request, approver = effect.request, host.approver
    assert approver is not None

    def refused(problem: str = "") -> tuple[Answered, str]:
        return answer_event(request, "refused", now()), problem

    tool = host.tools.get(request.tool)
    try:
        answer = await _answer(approver, _shown(effect, run, thread, tool, prepared))
        if isinstance(answer, Mapping) and request.kind == "tool":
            return edited(request, tool, answer, now(), put, prepared), ""
    except asyncio.CancelledError as exc:
        if from_outside():
            raise
        return refused(f"the approver was cancelled: {exc}")
    except Later:
        return None, ""
    except ArgumentError as exc:
        return refused(f"the edited arguments of {request.tool} are not valid: {brief(exc)}")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        return refused(f"the approver failed: {described(exc)}")
    if answer == "later":
        return None, ""
    if answer == "nobody":
        return answer_event(request, "nobody", now()), ""
    if answer is True or answer == "granted":
        return answer_event(request, "granted", now()), ""
    if answer is False or answer == "refused":
        return refused()
    if request.kind == "extension" and isinstance(answer, int):
        if answer > 0:
            return answer_event(request, "granted", now(), amount=answer), ""
        return refused(f"the approver granted {answer}: that is no amount")
    return refused(f"the approver returned a value of type `{type(answer).__name__}`: that is no answer")


def _shown(
    effect: Approval, run: str, thread: str | None, tool: Tool | None, prepared: Mapping[str, dict[str, Any]]
) -> ApprovalRequest:
    """The request as an approver sees it. Raises ``ArgumentError``."""
    request, call, because = effect.request, effect.call, effect.because
    if call is None:
        return ApprovalRequest(
            run, thread, request.id, request.resource, {}, "", request.until, because,
            "extension", request.resource, request.used, request.maximum, request.up_to,
        )  # fmt: skip
    arguments = prepared.get(request.id) or (tool.read(call.arguments) if tool else {})
    return ApprovalRequest(
        run, thread, request.id, call.name, arguments, call.arguments, request.until, because, _tool=tool
    )


async def _answer(approver: Approver, request: ApprovalRequest) -> Any:
    if inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(getattr(approver, "__call__", None)):  # noqa: B004
        answer: Any = approver(request)
    else:
        answer = await in_thread(lambda: approver(request), f"approval {request.id}")
    return await answer if inspect.isawaitable(answer) else answer


def accepted(tool: Tool | None, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments as the tool takes them, and as JSON. Raises ``ArgumentError``."""
    try:
        raw = clean(to_json(dict(arguments)).decode("utf-8"))
    except Exception as exc:
        raise ArgumentError(f"they are not JSON: {brief(exc)}") from None
    if tool is None:
        raise ArgumentError("there is no such tool any more")
    return tool.read(raw), raw
