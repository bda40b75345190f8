"""One attempt at a model: the request as it goes out, the hooks around it, and what came back as an event.

Never raises (but for a cancellation): whatever a hook, a client or a provider does ends in ``ModelReplied``
or ``ModelFailed``. Times are the caller's; events made here carry the time they are given by ``Attempt.now``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, get_args

from msgspec import structs

from engine.clients.base import ModelError
from engine.core.canonical import arguments_key
from engine.core.events import ModelFailed, ModelReplied, Proposed
from engine.core.messages import Finish, Message, Reply, Request, ToolCall, Usage
from engine.core.vocabulary import REASONS
from engine.run import sizes
from engine.run.cancellation import from_outside, must_pass
from engine.run.effects import ModelCall
from engine.run.hooks import CallContext, HookError, Rules
from engine.run.host import MOST_TOOL_CALLS, Host
from engine.run.jitter import unit
from engine.run.results import brief, clean, described
from engine.run.tools import ArgumentError


class Attempt:
    """One attempt while it is on its way: what the parts of this process need to know of it.

    ``text`` is what has been streamed so far; ``show`` is called with each piece, ``None`` if nobody looks.
    """

    __slots__ = ("effect", "now", "put", "request", "run", "show", "text", "thread")

    def __init__(
        self,
        effect: ModelCall,
        run: str,
        thread: str | None,
        now: Callable[[], int],
        put: Callable[[Message], str],
        show: Callable[[str], None] | None,
    ) -> None:
        self.effect = effect
        self.run = run
        self.thread = thread
        self.now = now
        self.put = put
        self.show = show
        self.text: list[str] = []
        self.request: Request | None = None
        """What goes on the wire, once that is known."""

    def delta(self, piece: str) -> None:
        """A piece of text has arrived."""
        self.text.append(piece)
        if self.show is not None:
            self.show(piece)

    def failed(
        self,
        reason: str,
        message: str = "",
        *,
        retry_after: int | None = None,
        text: str = "",
        usage: Usage | None = None,
        estimated: bool = False,
    ) -> ModelFailed:
        """The event for a failed attempt. Its content holds the partial text, and in words what went wrong."""
        decision = self.effect.decision
        shown = "".join(self.text)
        partial: Literal["none", "held", "delivered"] = "delivered" if shown else "held" if text else "none"
        content = Message("assistant", clean(shown or text), opaque={"error": clean(message)} if message else None)
        if usage is None and content.text and self.request is not None:
            usage, estimated = sizes.guessed(self.request, content), True
        return ModelFailed(
            at=self.now(),
            call=decision.call,
            attempt=decision.attempt,
            reason=reason if reason in REASONS else "unknown",
            retry_after=retry_after,
            jitter=unit(self.run, decision.n),
            partial=partial,
            usage=usage,
            estimated=estimated,
            ref=self.put(content) if content.text or message else "",
        )


async def call_model(
    host: Host,
    attempt: Attempt,
    messages: tuple[Message, ...],
    instruction: Message | None,
    prepared: dict[str, dict[str, Any]],
) -> ModelReplied | ModelFailed:
    """Make one attempt. ``prepared`` receives the validated arguments of each proposed call, by its id."""
    try:
        request = _request(host, attempt, messages, instruction)
        made: Request | Reply = request
        if host.hooks.shapes_requests:
            made = await host.hooks.prepare(request, Rules(attempt.effect.decision, instruction), _context(attempt))
        if isinstance(made, Reply):
            reply = made
        else:
            attempt.request = made
            if not _says_something(made.messages, instruction):
                return attempt.failed("host", "the request has no messages")
            reply = await _on_the_wire(host, attempt, made)
        if host.hooks.after_model:
            reply = await host.hooks.replied(reply, _context(attempt))
        return _replied(host, attempt, reply, prepared)
    except asyncio.CancelledError:
        if from_outside():
            raise
        return attempt.failed("unknown", "the client cancelled itself")
    except ModelError as exc:
        return attempt.failed(exc.reason, brief(exc), retry_after=exc.retry_after_ms, text=exc.text, usage=exc.usage)
    except HookError as exc:
        return attempt.failed("host", brief(exc))
    except BaseException as exc:  # a hostile client: even SystemExit is only a failed attempt
        if must_pass(exc):
            raise
        return attempt.failed(_reason(exc), f"the client failed: {described(exc)}")


def _says_something(messages: tuple[Message, ...], instruction: Message | None) -> bool:
    """Is there more than system messages and our own instruction?"""
    if messages and instruction is None and messages[-1].role != "system":
        return True
    return any(m.role != "system" and m is not instruction for m in messages)


def _request(host: Host, attempt: Attempt, messages: tuple[Message, ...], instruction: Message | None) -> Request:
    """The request as the decision wants it; request processors have not seen it yet."""
    decision = attempt.effect.decision
    if decision.notices:
        messages = (*messages, *(Message(role="user", text=text) for text in decision.notices))
    request = Request(
        messages=messages,
        tools=host.declarations,
        tool_choice=host.tool_choice,
        max_output=host.largest_output(decision.client),
        stream=attempt.show is not None,
        settings=dict(host.settings) if host.settings else {},
    )
    ruled = decision.final or decision.hidden or decision.max_output is not None
    if not ruled or host.hooks.shapes_requests:  # processors come first
        return request
    return Rules(decision, instruction).enforce(request)


def _context(attempt: Attempt) -> CallContext:
    d = attempt.effect.decision
    return CallContext(attempt.run, attempt.thread, d.call, d.attempt, d.client, d.final, d.why)


async def _on_the_wire(host: Host, attempt: Attempt, request: Request) -> Reply:
    decision = attempt.effect.decision
    client = host.clients.get(decision.client)
    if client is None:
        raise ModelError("host", f"there is no client named `{decision.client}`")
    # No time limit of the client's own: whoever runs this attempt interrupts it at the decision's deadline.
    reply = await client.complete(
        request,
        on_delta=attempt.delta if request.stream else None,
        idempotency_key=attempt.effect.idempotency,
    )
    if not isinstance(reply, Reply):
        raise ModelError("unknown", f"the client returned a value of type `{type(reply).__name__}`, not a Reply")
    return reply


def _reason(exc: BaseException) -> str:
    if isinstance(exc, TimeoutError):
        return "timeout"
    return "network" if isinstance(exc, OSError) else "unknown"


def _replied(
    host: Host, attempt: Attempt, reply: Reply, prepared: dict[str, dict[str, Any]]
) -> ModelReplied | ModelFailed:
    decision, request = attempt.effect.decision, attempt.request
    if problem := malformed(reply):
        return attempt.failed("unknown", problem)
    message = reply.message
    if message.role != "assistant":
        message = structs.replace(message, role="assistant")
    calls: tuple[Proposed, ...] = ()
    usage, estimated = reply.usage, False
    if usage is None:
        # A hook that answered in the provider's place has used no tokens.
        usage, estimated = (Usage(), False) if request is None else (sizes.guessed(request, reply.message), True)
    if message.tool_calls:
        if len(message.tool_calls) > MOST_TOOL_CALLS:
            said = f"the reply has {len(message.tool_calls)} tool calls; {MOST_TOOL_CALLS} are the most accepted"
            return attempt.failed("provider", said, usage=usage, estimated=estimated)
        message = with_own_ids(message, attempt.effect.round)
        calls = tuple(
            _proposed(host, f"{attempt.effect.round}.{i}", call, prepared) for i, call in enumerate(message.tool_calls)
        )
    return ModelReplied(
        at=attempt.now(),
        call=decision.call,
        attempt=decision.attempt,
        finish=reply.finish,
        text=bool(message.text) and not message.text.isspace(),
        calls=calls,
        usage=usage,
        estimated=estimated,
        ref=attempt.put(message),
    )


_FINISHES = frozenset(get_args(Finish))
_KINDS = ("function", "hosted")


def malformed(reply: Reply) -> str:
    """What is wrong with a reply that a client or a hook has made by hand; empty for one of the right types.

    Records do not check their fields, and nothing behind this point expects anything else.
    """
    message, usage = reply.message, reply.usage
    if not isinstance(message, Message) or not isinstance(message.text, str):
        return "the reply has no message with a text"
    for call in message.tool_calls:
        strings = isinstance(call, ToolCall) and type(call.id) is type(call.name) is type(call.arguments) is str
        if not strings or call.kind not in _KINDS:
            return "a tool call of the reply has fields of the wrong type"
    if reply.finish not in _FINISHES:
        return f"the reply has an unknown finish: {reply.finish!r}"
    if usage is not None:
        for count in (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning):
            if type(count) is not int or count < 0:
                return "the usage of the reply is not in whole numbers"
    return ""


def with_own_ids(message: Message, round: int) -> Message:
    """The message with an id for each call, no two alike. The same object where a provider did so itself."""
    ids = {call.id for call in message.tool_calls}
    if len(ids) == len(message.tool_calls) and "" not in ids:
        return message
    seen: set[str] = set()
    calls = []
    for i, call in enumerate(message.tool_calls):
        id = call.id
        if not id or id in seen:
            id = f"call_{round}_{i}"
            while id in ids or id in seen:
                id += "_"
        seen.add(id)
        calls.append(call if id == call.id else structs.replace(call, id=id))
    return structs.replace(message, tool_calls=tuple(calls))


def _proposed(host: Host, id: str, call: ToolCall, prepared: dict[str, dict[str, Any]]) -> Proposed:
    key = arguments_key(call.arguments)
    tool = host.tools.get(call.name)
    if call.kind != "function":
        return Proposed(id, call.name, key, kind=call.kind)
    if tool is None:
        return Proposed(id, call.name, key, registered=False)
    name = tool.name  # the registered one: no state then holds a copy of its own
    try:
        prepared[id] = tool.read(call.arguments)
    except ArgumentError as exc:
        return Proposed(id, name, key, problem=brief(exc))
    kind: Literal["function", "external", "agent", "handoff"] = "function"
    if tool.external or tool.handoff:
        kind = "external" if tool.external else "handoff"
    return Proposed(id, name, key, kind="agent" if name == host.delegates else kind)
