"""The host's own functions around a model call and a tool, and what no hook can undo.

Order at a model call: request processors; the rules of the decision (a final call loses its tools and
every forced tool choice, and gets its instruction as last message); each before-model hook, the rules
again after each of them; the wire; after-model hooks. They run for every attempt. Sync or async, all
of them run on the event loop; what they raise fails the attempt or the execution, never the run's loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import structs

from engine.core.decisions import Call
from engine.core.messages import Message, Reply, Request
from engine.run.cancellation import from_outside, must_pass
from engine.run.results import ToolResult, described
from engine.run.tools import ToolContext


@dataclass(frozen=True, slots=True)
class CallContext:
    """The attempt a hook is called for. ``why`` is the reason of a final call."""

    run: str
    thread: str | None
    call: str
    attempt: int
    client: str
    final: bool
    why: str


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """The execution a tool hook is called for. ``arguments`` are validated."""

    name: str
    arguments: Mapping[str, Any]
    context: ToolContext


RequestProcessor = Callable[[Request, CallContext], Request | Awaitable[Request | None] | None]
BeforeModel = Callable[[Request, CallContext], Request | Reply | Awaitable[Request | Reply | None] | None]
AfterModel = Callable[[Reply, CallContext], Reply | Awaitable[Reply | None] | None]
BeforeTool = Callable[
    [ToolInvocation], Mapping[str, Any] | ToolResult | Awaitable[Mapping[str, Any] | ToolResult | None] | None
]
AfterTool = Callable[[ToolInvocation, ToolResult], ToolResult | Awaitable[ToolResult | None] | None]


class HookError(RuntimeError):
    """A hook raised, or returned what no hook may return. The message names the hook."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Each list runs in order. ``None`` from a hook means: as it was.

    A before-model hook may return a ``Reply``: it stands in the provider's place, and the call has been used.
    A before-tool hook may return other arguments (validated again) or a ``ToolResult`` in the tool's place.
    """

    request_processors: Sequence[RequestProcessor] = ()
    before_model: Sequence[BeforeModel] = ()
    after_model: Sequence[AfterModel] = ()
    before_tool: Sequence[BeforeTool] = ()
    after_tool: Sequence[AfterTool] = ()
    shapes_requests: bool = field(init=False)
    """Is there a hook that can change a request?"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shapes_requests", bool(self.request_processors or self.before_model))

    async def prepare(self, request: Request, rules: Rules, context: CallContext) -> Request | Reply:
        """The request as it goes on the wire, or a hook's reply in the provider's place. Raises ``HookError``."""
        for processor in self.request_processors:
            changed = await _run(processor, "request processor", (Request, type(None)), request, context)
            request = request if changed is None else changed
        request = rules.enforce(request)
        for hook in self.before_model:
            changed = await _run(hook, "before_model hook", (Request, Reply, type(None)), request, context)
            if isinstance(changed, Reply):
                return changed
            request = rules.enforce(request if changed is None else changed)
        return request

    async def replied(self, reply: Reply, context: CallContext) -> Reply:
        """The reply after the after-model hooks. Raises ``HookError``."""
        for hook in self.after_model:
            changed = await _run(hook, "after_model hook", (Reply, type(None)), reply, context)
            reply = reply if changed is None else changed
        return reply

    async def starting(self, invocation: ToolInvocation) -> Mapping[str, Any] | ToolResult | None:
        """What the before-tool hooks make of the arguments (``None``: nothing). Raises ``HookError``."""
        arguments: Mapping[str, Any] | None = None
        for hook in self.before_tool:
            changed = await _run(hook, "before_tool hook", (Mapping, ToolResult, type(None)), invocation)
            if isinstance(changed, ToolResult):
                return changed
            if changed is not None:
                arguments = changed
                invocation = ToolInvocation(invocation.name, changed, invocation.context)
        return arguments

    async def ended(self, invocation: ToolInvocation, result: ToolResult) -> ToolResult:
        """The result after the after-tool hooks. Raises ``HookError``."""
        for hook in self.after_tool:
            changed = await _run(hook, "after_tool hook", (ToolResult, type(None)), invocation, result)
            result = result if changed is None else changed
        return result


async def _run(hook: Callable[..., Any], kind: str, allowed: tuple[type, ...], *given: Any) -> Any:
    name = getattr(hook, "__name__", type(hook).__name__)
    try:
        value = hook(*given)
        if inspect.isawaitable(value):
            value = await value
    except BaseException as exc:  # even SystemExit is only a hook that failed
        if must_pass(exc):
            raise
        if isinstance(exc, asyncio.CancelledError) and from_outside():
            raise
        raise HookError(f"{kind} `{name}` failed: {described(exc)}") from exc
    if not isinstance(value, allowed):
        names = ", ".join("None" if t is type(None) else t.__name__ for t in allowed)
        raise HookError(f"{kind} `{name}` returned a value of type `{type(value).__name__}`; it may return {names}")
    return value


class Rules:
    """What a decision says of the request, whatever a hook has done to it. Enforcing twice changes nothing."""

    __slots__ = ("_final", "_hidden", "_instruction", "_max_output", "_placed", "_strip")

    def __init__(self, decision: Call, instruction: Message | None) -> None:
        self._final = decision.final
        self._strip = decision.tools != "forbid"
        self._hidden = decision.hidden
        self._max_output = decision.max_output
        self._instruction = instruction
        self._placed = False

    def enforce(self, request: Request) -> Request:
        largest = self._max_output
        if largest is not None and (request.max_output is None or request.max_output > largest):
            request = structs.replace(request, max_output=largest)
        if self._hidden:
            request = _without_tools(request, self._hidden)
        if not self._final:
            return request
        return structs.replace(
            request,
            messages=self._with_instruction(request.messages),
            tools=() if self._strip else request.tools,
            tool_choice="auto" if self._strip else "none",
            settings=without_tool_control(request.settings),
        )

    def _with_instruction(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        instruction, placed = self._instruction, self._placed
        self._placed = True
        if instruction is None or (messages and messages[-1] is instruction):
            return messages
        if placed and messages and messages[-1] == instruction:
            return messages  # a hook has made the messages anew
        # By identity: a genuine message of the user may have the same words.
        return (*(m for m in messages if m is not instruction), instruction)


def _without_tools(request: Request, hidden: tuple[str, ...]) -> Request:
    """The request without these tools, and without forcing one of them (or any, if none is left)."""
    tools = tuple(tool for tool in request.tools if tool.name not in hidden)
    forced_away = request.tool_choice in hidden or (not tools and request.tool_choice == "required")
    return structs.replace(request, tools=tools, tool_choice="auto" if forced_away else request.tool_choice)


_TOOL_CONTROL: Final = frozenset(
    {
        "tools",
        "toolchoice",
        "toolconfig",
        "functions",
        "functioncall",
        "functioncallingconfig",
        "customtool",
        "customtools",
        "paralleltoolcalls",
        "allowedtools",
        "allowedfunctionnames",
    }
)
"""Settings that offer or force tools, in any provider's spelling, without case, ``_`` and ``-``."""


def without_tool_control(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without anything that offers or forces tools, at any depth. The same object if there was nothing."""
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key.replace("_", "").replace("-", "").lower() in _TOOL_CONTROL:
            continue
        kept[key] = without_tool_control(value) if isinstance(value, dict) else value
    return settings if kept == settings else kept
