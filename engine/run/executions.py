"""One execution of a tool: its hooks, the function on the event loop or in a thread, and the result as an event.

Never raises (but for a cancellation). A thread cannot be cut: whoever stops waiting for one leaves it to
end by itself, and its late end reaches nobody.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec import structs

from engine.core.events import ToolEnded
from engine.core.messages import Message
from engine.core.vocabulary import REFUSALS
from engine.run.cancellation import from_outside, must_pass
from engine.run.deadlines import Cut, told_model
from engine.run.effects import ToolRun
from engine.run.hooks import HookError, ToolInvocation
from engine.run.host import Host
from engine.run.jitter import unit
from engine.run.results import ResultError, ToolResult, brief, failure, to_result
from engine.run.threaded import in_thread
from engine.run.tools import ArgumentError, Tool, ToolContext

RETRIED = ("failed", "timed_out")
"""How an execution ends that a policy may try again."""


class Execution:
    """One execution while it goes on. ``in_thread``: a thread is working, which nobody can interrupt."""

    __slots__ = ("context", "effect", "in_thread", "now", "put")

    def __init__(self, effect: ToolRun, run: str, now: Callable[[], int], put: Callable[[Message], str]) -> None:
        decision, call = effect.decision, effect.call
        self.effect = effect
        self.now = now
        self.put = put
        self.in_thread = False
        self.context = ToolContext(
            run, decision.id, call.name, call.arguments, decision.attempt, decision.deadline, effect.idempotency
        )

    def ended(self, result: ToolResult) -> ToolEnded:
        """The event for a result; the result itself becomes a content of the conversation."""
        decision = self.effect.decision
        content = Message(
            role="tool", text=result.text, tool_call_id=self.effect.call.id, is_error=result.status != "ok"
        )
        return ToolEnded(
            at=self.now(),
            id=decision.id,
            attempt=decision.attempt,
            status=result.status,
            result=sha256(result.text.encode("utf-8", "replace")).hexdigest(),
            usage=result.usage,
            ends=result.ends,
            ref=self.put(content),
            jitter=unit(self.context.run, f"{decision.id}.{decision.attempt}") if result.status in RETRIED else 0,
        )

    def refused(self, problem: ArgumentError) -> ToolEnded:
        """The event for an execution whose arguments the tool does not accept."""
        text = REFUSALS["bad_arguments"].format(tool=self.effect.call.name, problem=brief(problem))
        return self.ended(ToolResult(text, "failed"))

    def cut(self) -> ToolEnded:
        """The event for an execution that was cancelled."""
        self.context.cancelled = True
        return self.ended(ToolResult(REFUSALS["cancelled"], "cancelled"))

    def timed_out(self, by: Cut | None) -> ToolEnded:
        """The event for an execution that a rule about time has cut."""
        self.context.cancelled = True
        return self.ended(ToolResult(told_model(by), "timed_out"))


async def run_tool(host: Host, execution: Execution, arguments: dict[str, Any] | None) -> ToolEnded:
    """Execute a tool call. ``arguments``: validated ones, if this process has them still."""
    name = execution.effect.call.name
    tool = host.tools.get(name)
    if tool is None:
        return execution.ended(ToolResult(REFUSALS["unknown_tool"].format(tool=name), "failed"))
    try:
        if arguments is None:
            arguments = tool.read(execution.effect.call.arguments)
        hooks = host.hooks
        if hooks.before_tool or hooks.after_tool:
            return execution.ended(await _with_hooks(host, tool, execution, arguments))
        return execution.ended(await _result(tool, execution, arguments))
    except asyncio.CancelledError:
        raise
    except ArgumentError as exc:
        return execution.refused(exc)
    except HookError as exc:
        return execution.ended(_hook_failed(name, exc))


async def _with_hooks(host: Host, tool: Tool, execution: Execution, arguments: dict[str, Any]) -> ToolResult:
    invocation = ToolInvocation(tool.name, arguments, execution.context)
    changed = await host.hooks.starting(invocation)
    if isinstance(changed, ToolResult):
        result = _checked(tool.name, changed)
    else:
        if changed is not None:
            arguments = tool.accept(changed)
            invocation = ToolInvocation(tool.name, arguments, execution.context)
        result = await _result(tool, execution, arguments)
    try:
        after = _checked(tool.name, await host.hooks.ended(invocation, result))
    except HookError as exc:
        after = _hook_failed(tool.name, exc)
    # What the tool has used is charged whatever a hook makes of its result.
    return after if after.usage is not None else structs.replace(after, usage=result.usage)


def _checked(tool: str, result: ToolResult) -> ToolResult:
    """A hook's result, if it is one that a tool may have."""
    try:
        return to_result(result)
    except ResultError as exc:
        return failure(tool, exc)


def _hook_failed(tool: str, exc: HookError) -> ToolResult:
    return ToolResult(f"The tool `{tool}` failed: {brief(exc)}", "failed")


async def _result(tool: Tool, execution: Execution, arguments: dict[str, Any]) -> ToolResult:
    try:
        if tool.is_async:
            value = await tool.call(arguments, execution.context)
        else:
            value = await _in_thread(execution, lambda: tool.call(arguments, execution.context))
            if inspect.isawaitable(value):  # a plain function may return a coroutine
                value = await value
        return to_result(value)
    except asyncio.CancelledError as exc:
        if from_outside():
            raise
        return failure(tool.name, exc)
    except BaseException as exc:  # SystemExit too: a tool must not end the process
        if must_pass(exc):
            raise
        return failure(tool.name, exc)


async def _in_thread(execution: Execution, work: Callable[[], Any]) -> Any:
    execution.in_thread = True
    try:
        return await in_thread(work, f"tool {execution.context.name}")
    finally:
        execution.in_thread = False
