"""The user's function tools, copied with a gate before each: it asks the run's session, and runs the tool itself.

A gate belongs to no run; it finds the one it is called in. Outside of a run it lets everything through.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any
from weakref import WeakKeyDictionary

from agents.exceptions import ToolTimeoutError
from agents.function_schema import function_schema
from agents.run_context import RunContextWrapper
from agents.tool import (
    FunctionTool,
    Tool,
    default_tool_timeout_error_message,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext
from pydantic import BaseModel, TypeAdapter, ValidationError

from engine.adapters.acts import Ran, Run, Sleep
from engine.adapters.carrying import carried
from engine.adapters.openai_agents.running import Running, current, inside
from engine.adapters.raised import misfit
from engine.core.messages import Usage
from engine.core.state import NO_TIME
from engine.core.vocabulary import REFUSALS
from engine.run.results import ResultError, failure, to_text


def gated(tool: Tool, running: Running) -> Tool:
    """The tool with a gate before it, as far as it is a function of the host: nothing else can be refused."""
    if not isinstance(tool, FunctionTool) or isinstance(tool.on_invoke_tool, Gate):
        return tool
    copied = _copied(tool)
    gate = Gate(tool)
    copied.on_invoke_tool = gate
    copied.timeout_seconds = None  # the gate keeps it, for each execution by itself
    if tool.needs_approval is not False or running.asks(tool.name):
        copied.needs_approval = gate.needs_approval
    return copied


def _copied(tool: FunctionTool) -> FunctionTool:
    """A copy without making its schema anew, as ``copy.copy`` would."""
    copied = object.__new__(type(tool))
    copied.__dict__.update(tool.__dict__)
    return copied


class Gate:
    """What is called in the place of a tool."""

    __signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("context", "arguments")]
    )
    """The SDK reads it at every call; given here, that costs nothing."""

    def __init__(self, tool: FunctionTool) -> None:
        self.tool = tool
        self._inner = _raising(tool)
        self._arguments = _arguments(tool)

    def problem(self, arguments: str) -> str:
        """Why the tool does not accept these arguments; empty if it may."""
        try:
            self._arguments(arguments if arguments.strip() else "{}")
        except ValidationError as error:
            return misfit(error)
        except Exception:  # a validator of the user's own: the tool will say it
            return ""
        return ""

    async def needs_approval(self, context: RunContextWrapper[Any], arguments: dict[str, Any], id: str) -> bool:
        """Is a person to be asked? By the policy, or by the tool itself where the policy lets the call through."""
        running = current.get()
        if running is not None:
            if running.refused(id):
                return False
            if running.asked(id):
                return True
        wants = self.tool.needs_approval
        if isinstance(wants, bool):
            return wants
        answer = wants(context, arguments, id)
        return bool(await answer) if inspect.isawaitable(answer) else bool(answer)

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        running = current.get()
        if running is None:
            return await invoke_function_tool(function_tool=self.tool, context=context, arguments=arguments)
        id = context.tool_call_id
        await running.answered(id, True)

        async def perform(act: Run | Sleep) -> Ran | None:
            if isinstance(act, Run):
                return await self._run(act, context, arguments)
            await running.sleep(act)
            return None

        try:
            result = await carried(running.session.tool(id, self.tool.name, arguments), perform)
        except _Waits as waits:  # a run inside waits for a person; the call comes again
            return waits.value
        running.settle(id)
        if result.ran is None:
            return result.refused
        if isinstance(result.ran.value, _Raised):
            raise result.ran.value.error
        return result.ran.value

    async def _run(self, act: Run, context: ToolContext[Any], arguments: str) -> Ran:
        """One execution."""
        running = current.get()
        assert running is not None
        runs = running.inside(context.tool_call_id)
        token = inside.set(runs)
        deadline = act.execution.deadline
        seconds = None if deadline >= NO_TIME else max(0, deadline - running.governor.clock()) / 1000
        time = asyncio.timeout(seconds)
        try:
            async with time:
                value = await invoke_function_tool(function_tool=self._inner, context=context, arguments=arguments)
        except ToolTimeoutError as error:
            return await self._timed_out(context, error, runs.used)
        except Exception as error:
            if time.expired() and isinstance(error, TimeoutError):
                text = REFUSALS["timed_out"]
                return Ran("timed_out", text, text, runs.used)
            return await self._failed(context, error, runs.used)
        finally:
            inside.reset(token)
        if runs.waits:
            raise _Waits(value)
        return Ran("ok", _text(value), value, runs.used, ends=running.ends(context))

    async def _failed(self, context: ToolContext[Any], error: Exception, used: Usage | None) -> Ran:
        """What the model reads of it is as the user's tool says; a tool that says nothing lets it through."""
        text = await maybe_invoke_function_tool_failure_error_function(
            function_tool=self.tool, context=context, error=error
        )
        if text is None:
            return Ran("failed", failure(self.tool.name, error).text, _Raised(error), used)
        return Ran("failed", text, text, used)

    async def _timed_out(self, context: ToolContext[Any], error: ToolTimeoutError, used: Usage | None) -> Ran:
        """The tool's own timeout."""
        if self.tool.timeout_behavior == "raise_exception":
            return Ran("timed_out", str(error), _Raised(error), used)
        tell = self.tool.timeout_error_function
        if tell is None:
            text = default_tool_timeout_error_message(tool_name=self.tool.name, timeout_seconds=error.timeout_seconds)
            return Ran("timed_out", text, text, used)
        said = tell(context, error)
        text = await said if inspect.isawaitable(said) else said
        return Ran("timed_out", text, text, used)


class _Raised:
    """What a tool raises through its run."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _Waits(Exception):
    """The execution has not ended: something inside of it waits for a person."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _raising(tool: FunctionTool) -> FunctionTool:
    """The tool as it is, but for failures and timeouts: those are raised, so that they can be told from results."""
    inner: Any = _copied(tool)
    inner.timeout_behavior = "raise_exception"
    inner._failure_error_function = None
    inner._use_default_failure_error_function = False
    bind: Any = getattr(tool.on_invoke_tool, "__agents_bind_function_tool__", None)
    if callable(bind):
        inner.on_invoke_tool = bind(inner)
    elif inspect.ismethod(tool.on_invoke_tool) and tool.on_invoke_tool.__self__ is tool:
        inner.on_invoke_tool = tool.on_invoke_tool.__func__.__get__(inner, type(inner))
    raising: FunctionTool = inner
    return raising


def _text(value: Any) -> str:
    try:
        return to_text(value)
    except ResultError:
        return str(value)


# What arguments a tool accepts.

_object: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_known: WeakKeyDictionary[Any, type[BaseModel]] = WeakKeyDictionary()


def _arguments(tool: FunctionTool) -> Any:
    """Reads arguments, or raises ``ValidationError``: by the function's own types if the tool was made of one."""
    try:
        function = tool.__wrapped__
        model = _known.get(function)
    except (AttributeError, TypeError):
        return _object.validate_json
    if model is None:
        try:
            model = function_schema(function, strict_json_schema=False).params_pydantic_model
            if tool.params_json_schema.get("additionalProperties") is False:
                model = type(model.__name__, (model,), {"model_config": {"extra": "forbid"}})
            _known[function] = model
        except Exception:  # a function that only the SDK's own way reads
            return _object.validate_json
    return model.model_validate_json
