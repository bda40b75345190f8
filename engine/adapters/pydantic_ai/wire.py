"""Pydantic AI's words for what passes between a loop and a run of ours: requests, replies, results, failures.

Nothing here decides anything, and nothing keeps anything.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext, ToolDenied
from pydantic_ai.usage import RequestUsage

from engine.adapters import raised
from engine.adapters.acts import Failed, Kind, Ran, Replied
from engine.clients.classify import asked_to_wait_ms
from engine.core.decisions import Call
from engine.core.messages import Finish, Message, Reply, ToolCall, Usage
from engine.run import sizes
from engine.run.results import EndRun, ResultError, ToolResult, to_result, to_text

REJECTED: Final = "the answer was not accepted"
"""Why an answer that the framework sends back counts as a call with arguments that do not fit."""
_DENIED: Final = ToolDenied().message
_FINISHES: Final[dict[str, Finish]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "tool_call": "tool_calls",
}
_DECLARES_TOOLS: Final = ("anthropic", "bedrock")
"""Systems that refuse a history with tool calls where no tools are declared."""


class Sent(NamedTuple):
    """A request as a model gets it."""

    messages: list[ModelMessage]
    settings: ModelSettings | None
    parameters: ModelRequestParameters


# Requests.


def sent(call: Call, request: Sent, model: Model, refused: Mapping[str, str]) -> Sent:
    """The request as the decision says. ``refused`` are the texts that stand for results, by the calls' ids."""
    messages = list(_told(request.messages, refused) if refused else request.messages)
    said = [text for text in (*call.notices, call.instruction) if text]
    if said and messages:
        messages[-1] = _with_texts(messages[-1], said)
    settings = cast(ModelSettings, dict(request.settings or {}))
    _without_retries(model, settings)
    if call.max_output is not None:
        settings["max_tokens"] = min(call.max_output, settings.get("max_tokens") or call.max_output)
    parameters = request.parameters
    if call.tools != "offer":
        settings.pop("tool_choice", None)
        if _declares(model, parameters, messages):
            settings["tool_choice"] = "none"
        else:
            parameters = replace(parameters, function_tools=[], native_tools=[])
    elif call.hidden:
        shown = [tool for tool in parameters.function_tools if tool.name not in call.hidden]
        parameters = replace(parameters, function_tools=shown)
    return Sent(messages, settings or None, parameters)


def _without_retries(model: Model, settings: ModelSettings) -> None:
    """The SDK must not try again by itself; those that do it are told so with each request."""
    if getattr(getattr(model, "client", None), "max_retries", 0):
        settings["max_retries"] = 0


def _declares(model: Model, parameters: ModelRequestParameters, messages: Iterable[ModelMessage]) -> bool:
    """Does the provider want the tools declared in a call that must not use them?"""
    if model.system not in _DECLARES_TOOLS or not parameters.function_tools:
        return False
    return any(isinstance(m, ModelResponse) and m.tool_calls for m in messages)


def _with_texts(last: ModelMessage, texts: Sequence[str]) -> ModelMessage:
    """The last request with what is said in this call only."""
    parts = [UserPromptPart(text) for text in texts]
    return replace(last, parts=[*last.parts, *parts]) if isinstance(last, ModelRequest) else last


def _told(messages: Iterable[ModelMessage], refused: Mapping[str, str]) -> Iterable[ModelMessage]:
    """The messages with our words for the framework's, where a person has refused without any."""
    for message in messages:
        if isinstance(message, ModelRequest) and any(_denied(part, refused) for part in message.parts):
            parts = [
                replace(cast(Any, part), content=refused[part.tool_call_id])
                if isinstance(part, ToolReturnPart) and _denied(part, refused)
                else part
                for part in message.parts
            ]
            yield replace(message, parts=parts)
        else:
            yield message


def _denied(part: Any, refused: Mapping[str, str]) -> bool:
    return isinstance(part, ToolReturnPart) and part.tool_call_id in refused and part.content == _DENIED


def tokens(request: Sent) -> int:
    """A rough size of a request."""
    size = sum(map(_characters, request.messages))
    for tool in (*request.parameters.function_tools, *request.parameters.output_tools):
        size += len(tool.name) + len(tool.description or "") + len(str(tool.parameters_json_schema))
    return sizes.tokens(size)


def _characters(message: ModelMessage) -> int:
    size = 0
    for part in message.parts:
        content = part.args if isinstance(part, ToolCallPart) else getattr(part, "content", "")
        size += len(content) if isinstance(content, str) else len(str(content))
    return size


def conversation(messages: Iterable[ModelMessage]) -> tuple[Message, ...]:
    """The messages in our own form, for functions that the policy names."""
    found: list[Message] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            found.append(said(message))
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                text = part.model_response_str(wrap_if_error=False)
                found.append(Message("tool", text, tool_call_id=part.tool_call_id))
            elif isinstance(part, UserPromptPart | SystemPromptPart):
                role = "user" if isinstance(part, UserPromptPart) else "system"
                text = part.content if isinstance(part.content, str) else str(part.content)
                found.append(Message(role, text))  # type: ignore[arg-type]
    return tuple(found)


# Replies.


def said(response: ModelResponse) -> Message:
    """A response as a message of ours."""
    calls: list[ToolCall] = []
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            calls.append(ToolCall(part.tool_call_id, part.tool_name, arguments(part)))
        elif isinstance(part, NativeToolCallPart):
            calls.append(ToolCall(part.tool_call_id, part.tool_name, arguments(part), "hosted"))
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    return Message("assistant", text, tuple(calls))


def arguments(part: ToolCallPart | NativeToolCallPart) -> str:
    """The arguments as the model has sent them, or as JSON."""
    return part.args if isinstance(part.args, str) else json.dumps(part.args or {})


def replied(
    response: ModelResponse, parameters: ModelRequestParameters, ctx: RunContext[Any] | None
) -> Replied | Failed:
    """What a response comes to, with what each of its calls is for."""
    if response.finish_reason == "error":
        return Failed("provider", "the provider ended the response with an error", usage=usage(response.usage))
    message = said(response)
    outputs = {tool.name for tool in parameters.output_tools}
    external = {tool.name for tool in parameters.function_tools if tool.kind == "external"}
    manager = None if ctx is None else ctx.tool_manager
    tools = None if manager is None else manager.tools
    kinds: dict[str, Kind] = {}
    unregistered: set[str] = set()
    problems: dict[str, str] = {}
    for call in message.tool_calls:
        if call.kind == "hosted":
            kinds[call.id] = "hosted"
            continue
        tool = None if tools is None else tools.get(call.name)
        problem = "" if tool is None else _problem(tool.args_validator, call.arguments, ctx)
        if call.name in outputs and not problem:
            kinds[call.id] = "output"
        elif call.name in external and not problem:
            kinds[call.id] = "external"
        elif problem:
            problems[call.id] = problem
        elif tool is None and call.name not in parameters.tool_defs:
            unregistered.add(call.id)
    finish = _FINISHES.get(response.finish_reason or "", "tool_calls" if message.tool_calls else "stop")
    reply = Reply(message, finish, usage(response.usage), response.model_name or "")
    return Replied(reply, kinds, frozenset(unregistered), problems)


def _problem(validator: Any, raw: str, ctx: RunContext[Any] | None) -> str:
    """Why the arguments do not fit, in words."""
    try:
        validator.validate_json(raw or "{}", context=None if ctx is None else ctx.validation_context)
    except ValidationError as error:
        return raised.misfit(error)
    except Exception:  # a validator of the tool's own types: the framework will say
        return ""
    return ""


def usage(used: RequestUsage) -> Usage | None:
    """Tokens, or nothing where the provider has reported none."""
    if not (used.input_tokens or used.output_tokens):
        return None
    return Usage(
        input=used.input_tokens,
        output=used.output_tokens,
        cached=used.cache_read_tokens,
        cache_write=used.cache_write_tokens,
        reasoning=used.details.get("reasoning_tokens", 0),
    )


def without_calls(response: ModelResponse, outputs: Iterable[str]) -> ModelResponse:
    """A response of which no function call is to be carried out any more; answers by tool stay."""
    kept = [part for part in response.parts if not _to_drop(part, outputs)]
    return response if len(kept) == len(response.parts) else replace(response, parts=kept)


def _to_drop(part: ModelResponsePart, outputs: Iterable[str]) -> bool:
    return isinstance(part, ToolCallPart) and part.tool_name not in outputs


def failed(exc: BaseException, text: str = "") -> Failed:
    """Why an attempt failed; ``text`` is what somebody has seen of its reply."""
    found = raised.failed(exc, text=text, delivered=bool(text))
    if isinstance(exc, ModelAPIError) and found.retry_after is None:
        headers = getattr(exc, "headers", None)
        wait = None if headers is None else asked_to_wait_ms(headers, time.time())
        return Failed(found.reason, found.message, wait, text, bool(text))
    return found


# Results.


def ran(value: Any) -> Ran:
    """What an execution came to, with what the framework gets for it."""
    if isinstance(value, EndRun | ToolResult):
        try:
            result = to_result(value)
        except ResultError as exc:
            result = ToolResult(str(exc), "failed")
        return Ran(result.status, result.text, result.text, result.usage, result.ends)
    shown = value.return_value if isinstance(value, ToolReturn) else value
    try:
        text = to_text(shown)
    except ResultError:
        text = str(shown)
    return Ran("ok", text, value)


def brought(part: ToolReturnPart) -> Ran:
    """What was carried out elsewhere came to this."""
    status = "ok" if part.outcome == "success" else "failed"
    return Ran(status, part.model_response_str(wrap_if_error=False))  # type: ignore[arg-type]


def results(messages: Iterable[ModelMessage]) -> dict[str, ToolReturnPart]:
    """The results behind the last response, by the ids of their calls."""
    found: dict[str, ToolReturnPart] = {}
    for message in reversed(list(messages)):
        if isinstance(message, ModelResponse):
            break
        found |= {part.tool_call_id: part for part in message.parts if isinstance(part, ToolReturnPart)}
    return found
