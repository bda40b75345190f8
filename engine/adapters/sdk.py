"""A policy over loops that call a provider's own SDK: what ``guard`` of ``openai`` and ``anthropic`` gives.

``guard(client, policy)`` is made once; each ``with guard.run() as run`` is one run of the policy, with a client of its
own (``run.client``), so that runs never mix. A format's own words are in its ``Face``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar

import httpx2

from engine.adapters.acts import Advice, Answer, Consult, Ran, Result, Sleep
from engine.adapters.acts import Run as Execution
from engine.adapters.carrying import carried, carried_sync
from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.adapters.sdk_options import Approver, Face, Options
from engine.adapters.sdk_transport import AsyncTransport, Transport
from engine.adapters.sdk_turn import Turn, Whole
from engine.clients.wire import decode
from engine.core.decisions import Ask
from engine.core.messages import Message, ToolCall
from engine.core.outcome import Outcome
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.step import Compiled
from engine.core.vocabulary import REFUSALS
from engine.gateway.wires import Json, Round
from engine.run.approvals import ApprovalRequest
from engine.run.deadlines import told_model
from engine.run.errors import RunError
from engine.run.results import brief, described, failure, to_result
from engine.run.threaded import in_thread
from engine.run.tools import ArgumentError, Tool, ToolContext, toolbox

C = TypeVar("C")
_log = logging.getLogger("policy.adapters")


class Guard(Generic[C]):
    """A policy over loops with one client of an SDK that blocks. Make it by ``guard``; see there."""

    def __init__(self, face: Face, client: C, policy: Policy | Compiled, options: Options) -> None:
        rest: dict[str, Any] = dict(options)
        name: str = rest.pop("name", "main")
        models: Mapping[str, Any] = rest.pop("models", None) or {}
        tools: Iterable[Tool | Callable[..., Any]] = rest.pop("tools", ())
        self.face, self.client, self.name = face, client, name
        self.approver: Approver | None = rest.pop("approver", None)
        self.others: dict[str, C] = {}
        self.models: dict[str, str] = {}
        for other, given in models.items():
            its, model = (client, given) if isinstance(given, str) else given
            if type(its) is not type(client):
                raise TypeError(f"client `{other}` is a {type(its).__name__}, not a {type(client).__name__}")
            self.others[other], self.models[other] = its, model
        clients = [Client(name, "", face.host), *(Client(n, m, face.host) for n, m in self.models.items())]
        self.governor = Governor(policy, face.host, clients=clients, **rest)
        self.tools = toolbox(tools)
        self._made: dict[Any, Tool] = {}

    @property
    def declared(self) -> list[Any]:
        """The tools as a request declares them: ``create(..., tools=guard.declared)``."""
        return [self.face.declared(tool.spec) for tool in self.tools.values()]

    def run(self, *, thread: str | None = None, id: str | None = None) -> Run[C]:
        """A run that begins: ``with guard.run(thread="...") as run``. ``thread`` is the conversation that limits per
        thread count for; ``id`` the run's name in logs and the journal."""
        return Run(self, thread, id)

    def tool_of(self, call: ToolCall, function: Callable[..., Any] | None) -> Tool | None:
        """The tool that a call is for."""
        if function is None:
            return self.tools.get(call.name)
        if isinstance(function, Tool):
            return function
        key = (function, call.name)
        if key not in self._made:
            self._made[key] = Tool(function, name=call.name)
        return self._made[key]

    def problem(self, call: ToolCall) -> str:
        """Why a call's arguments are not accepted, in words."""
        tool = self.tools.get(call.name)
        try:
            if tool is not None:
                tool.read(call.arguments)
            elif not isinstance(decode(call.arguments.strip() or "{}"), dict):
                return "not a JSON object"
        except ValueError as exc:  # an ``ArgumentError`` too
            return brief(exc)
        return ""

    def close(self) -> None:
        """Close the file of the decision log."""
        self.governor.close()


class AsyncGuard(Guard[C]):
    """The same for a client that waits on an event loop."""

    def run(self, *, thread: str | None = None, id: str | None = None) -> AsyncRun[C]:  # type: ignore[override]
        return AsyncRun(self, thread, id)


class Base(Generic[C]):
    """What runs of both kinds have in common."""

    client: C
    """The SDK's client, governed: an ordinary one for whoever uses it, without retries of its own."""

    def __init__(self, guard: Guard[C], thread: str | None, id: str | None) -> None:
        self.guard, self.face = guard, guard.face
        self.session = guard.governor.session(run=id, thread=thread)
        self.id = self.session.run
        self.clock = guard.governor.clock
        self.inner: Any = getattr(guard.client, "_client", None)
        self._rounds: dict[str, Round] = {}
        self._given: dict[str, ToolCall] = {}
        """Calls that the loop has got, and has not run by ``tool``."""
        self._told = False

    @property
    def outcome(self) -> Outcome | None:
        """How the run has ended; ``None`` while it goes on."""
        return self.session.outcome

    def cancel(self, cause: str = "user") -> Outcome:
        """End the run; whatever is in flight is not waited for."""
        return self.session.cancel(cause)

    # For the transport.

    def turn(self, body: Json) -> Turn:
        """A request of the loop."""
        outcome = self.outcome
        if outcome is not None and self._told:
            raise RunError(f"this run has ended ({outcome.status}): begin another one with `guard.run()`")
        guard = self.guard
        return Turn(
            self.session,
            self.face.wire,
            body,
            client=guard.name,
            models=guard.models,
            tools=frozenset(guard.tools),
            problem=guard.problem,
            rounds=self._rounds,
        )

    def other(self, client: str) -> Any:
        """The client for an attempt; ``None``: the loop's own, as it was asked."""
        its = self.guard.others.get(client)
        return None if its is None or its is self.guard.client else its

    def unheard(self) -> tuple[str, ...]:
        """Calls that the loop has answered without a word to us."""
        found, self._given = tuple(self._given), {}
        return found

    def ended(self, turn: Turn, answer: Answer) -> bytes | Whole:
        """What the loop gets."""
        self._told = answer.outcome is not None
        self._given = {} if self._told else {call.id: call for call in turn.kept}
        return turn.end(answer)

    # Tools.

    def _asks(self, answer: Answer, turn: Turn) -> list[tuple[str, ApprovalRequest]]:
        """What a person is to be asked about a reply, by the provider's ids."""
        calls = {c.id: c for c in answer.reply.message.tool_calls} if answer.reply is not None else {}
        thread = self.session.thread
        return [
            (
                id,
                ApprovalRequest(
                    self.id, thread, id, c.name, _object(c.arguments), c.arguments, verdict.until, verdict.because
                ),
            )
            for id, verdict in answer.verdicts.items()
            if isinstance(verdict, Ask) and (c := calls.get(id)) is not None
        ]

    def _answered(self, id: str, granted: bool | None) -> None:
        self.session.answer(id, granted)

    def _verdicts(self, answer: Answer, asked: Iterable[str]) -> dict[str, Any]:
        return {**answer.verdicts, **{id: self.session.verdict(id) for id in asked}}

    def _begun(self, call: Any) -> ToolCall:
        found = self.face.read(call)
        if not self.session.knows(found.id):
            raise RunError(f"`{found.name}`: no call with the id {found.id!r} is in the last reply of this run")
        self._given.pop(found.id, None)
        return found

    def _result(self, call: ToolCall, result: Result) -> Any:
        if result.ran is None:
            return self.face.result(call.id, result.refused or REFUSALS["stopped"], True)
        return self.face.result(call.id, result.ran.text, result.ran.status != "ok")

    def _prepared(
        self, call: ToolCall, tool: Tool | None, act: Execution
    ) -> tuple[Tool, dict[str, Any], ToolContext] | Ran:
        """What is to be run; or why it cannot be."""
        if tool is None:
            raise RunError(f"`{call.name}` is no tool of this guard: give its function, `run.tool(call, function)`")
        execution = act.execution
        try:
            arguments = tool.read(call.arguments)
        except ArgumentError as exc:
            return Ran("failed", REFUSALS["bad_arguments"].format(tool=call.name, problem=brief(exc)))
        context = ToolContext(
            self.id, call.id, call.name, call.arguments, execution.attempt, execution.deadline, act.idempotency
        )
        return tool, arguments, context

    def _leave(self) -> None:
        if self.outcome is None:
            self.cancel()


class Run(Base[C]):
    """One run, of a loop that blocks. Leaving the block ends it: what has not come to an end is cancelled."""

    def __init__(self, guard: Guard[C], thread: str | None, id: str | None) -> None:
        super().__init__(guard, thread, id)
        if self.inner is not None:
            http = httpx2.Client(transport=Transport(self), trust_env=False)
            self.client = guard.client.copy(http_client=http, max_retries=0)  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def tool(self, call: Any, function: Callable[..., Any] | None = None) -> Any:
        """Run a tool that the model has asked for, as the policy says: the message (``anthropic``: the block) that
        answers it. ``call`` is the SDK's own; ``function`` is called with its arguments, if the guard has no ``tools``.
        Whatever the function raises is told to the model.

        Raises:
            RunError: it is no call of the last reply, or there is no function for it.
            TypeError: the function is a coroutine's.
        """
        asked = self._begun(call)
        tool = self.guard.tool_of(asked, function)
        if tool is not None and tool.is_async:
            raise TypeError(f"`{asked.name}` is a coroutine function: guard a client that is asynchronous too")

        def perform(act: Execution | Sleep) -> Any:
            if isinstance(act, Sleep):
                return threading.Event().wait(max(0, act.until - self.clock()) / 1000)
            return self._executed(asked, tool, act)

        return self._result(asked, carried_sync(self.session.tool(asked.id, asked.name, asked.arguments), perform))

    def _executed(self, call: ToolCall, tool: Tool | None, act: Execution) -> Ran:
        prepared = self._prepared(call, tool, act)
        if isinstance(prepared, Ran):
            return prepared
        what, arguments, context = prepared
        if context.deadline >= NO_TIME:
            return _ran(call.name, partial(what.call, arguments, context))
        came: list[Ran] = []
        work = threading.Thread(
            target=lambda: came.append(_ran(call.name, partial(what.call, arguments, context))), daemon=True
        )
        work.start()
        work.join(max(0, context.deadline - self.clock()) / 1000)
        if came:
            return came[0]
        context.cancelled = True
        return Ran("timed_out", told_model(None))

    # For the transport.

    def advise(self, act: Consult, messages: list[Message]) -> Advice:
        """What the host's function says."""
        return self.guard.governor.advise_sync(self.session, act, messages)

    def judged(self, answer: Answer, turn: Turn) -> dict[str, Any]:
        """The verdicts on a reply, when people have answered."""
        asked = self._asks(answer, turn)
        approver = self.guard.approver
        for id, request in asked:
            granted: Any = None
            if approver is not None:
                try:
                    granted = approver(request)
                    if inspect.isawaitable(granted):
                        raise TypeError("the approver of a client that blocks must be no coroutine function")
                except Exception as exc:
                    _log.warning("run %s: the approver failed: %s", self.id, described(exc))
                    granted = False
            self._answered(id, None if approver is None else granted is True)
        return self._verdicts(answer, (id for id, _ in asked))


class AsyncRun(Base[C]):
    """One run, of a loop that waits on an event loop. ``async with`` and ``with`` do the same."""

    def __init__(self, guard: Guard[C], thread: str | None, id: str | None) -> None:
        super().__init__(guard, thread, id)
        if self.inner is not None:
            http = httpx2.AsyncClient(transport=AsyncTransport(self), trust_env=False)
            self.client = guard.client.copy(http_client=http, max_retries=0)  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    async def tool(self, call: Any, function: Callable[..., Any] | None = None) -> Any:
        """Run a tool that the model has asked for: see ``Run.tool``. Functions that block run in a thread."""
        asked = self._begun(call)
        tool = self.guard.tool_of(asked, function)

        async def perform(act: Execution | Sleep) -> Any:
            if isinstance(act, Sleep):
                return await asyncio.sleep(max(0, act.until - self.clock()) / 1000)
            return await self._executed(asked, tool, act)

        return self._result(asked, await carried(self.session.tool(asked.id, asked.name, asked.arguments), perform))

    async def _executed(self, call: ToolCall, tool: Tool | None, act: Execution) -> Ran:
        prepared = self._prepared(call, tool, act)
        if isinstance(prepared, Ran):
            return prepared
        what, arguments, context = prepared
        seconds = None if context.deadline >= NO_TIME else max(0, context.deadline - self.clock()) / 1000
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                work = partial(what.call, arguments, context)
                value = await (work() if what.is_async else in_thread(work, call.name))
        except Exception as exc:
            if limit.expired():
                context.cancelled = True
                return Ran("timed_out", told_model(None))
            error = exc
            return _ran(call.name, partial(_raise, error))
        return _ran(call.name, lambda: value)

    # For the transport.

    async def advise(self, act: Consult, messages: list[Message]) -> Advice:
        """What the host's function says."""
        return await self.guard.governor.advise(self.session, act, messages)

    async def judged(self, answer: Answer, turn: Turn) -> dict[str, Any]:
        """The verdicts on a reply, when people have answered."""
        asked = self._asks(answer, turn)
        for id, request in asked:
            self._answered(id, await self._granted(request))
        return self._verdicts(answer, (id for id, _ in asked))

    async def _granted(self, request: ApprovalRequest) -> bool | None:
        approver = self.guard.approver
        if approver is None:
            return None
        left = None if request.until >= NO_TIME else max(0, request.until - self.clock()) / 1000
        try:
            async with asyncio.timeout(left):
                if inspect.iscoroutinefunction(approver):
                    return await approver(request) is True
                granted = await in_thread(partial(approver, request), "approver")
                return (await granted if inspect.isawaitable(granted) else granted) is True
        except Exception as exc:
            _log.warning("run %s: the approver failed: %s", self.id, described(exc))
            return False


def _ran(name: str, work: Callable[[], Any]) -> Ran:
    """What comes of a function."""
    try:
        result = to_result(work())
    except Exception as exc:
        result = failure(name, exc)
    return Ran(result.status, result.text, usage=result.usage, ends=result.ends)


def _raise(error: Exception) -> Any:
    raise error


def _object(arguments: str) -> dict[str, Any]:
    try:
        found = decode(arguments or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
