"""Calls, replies and options of the Microsoft Agent Framework in the engine's words, and back. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_framework import (
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    MiddlewareFailure,
)
from pydantic import BaseModel, ValidationError

from engine.adapters.acts import Answer, Failed
from engine.adapters.raised import failed, misfit
from engine.adapters.session import stopped
from engine.core import messages as m
from engine.core.decisions import Call
from engine.run.hooks import without_tool_control

_REASONS = (("ContentFilter", "content_filter"), ("InvalidAuth", "auth"), ("InvalidRequest", "invalid_request"))
"""What the framework itself calls failures, where no provider has said anything."""
_FINISHES: dict[str, m.Finish] = {"length": "length", "content_filter": "content_filter", "tool_calls": "tool_calls"}


class Unknown(FunctionTool):
    """Stands in the run's tools for one that a model has made up, so that its call comes to the middleware."""


def options_of(options: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The options of one attempt: without tools for a final call, and never with those that only stand in."""
    given = dict(options)
    if call.final:
        given = without_tool_control(given)
        given.pop("allow_multiple_tool_calls", None)
    elif isinstance(tools := given.get("tools"), list):
        given["tools"] = [
            tool for tool in tools if not isinstance(tool, Unknown) and getattr(tool, "name", None) not in call.hidden
        ] or None
    largest = given.get("max_tokens")
    if call.max_output is not None and (largest is None or largest > call.max_output):
        given["max_tokens"] = call.max_output
    return given


def tools_of(context: ChatContext) -> list[Any]:
    tools = (context.options or {}).get("tools")
    return list(tools) if isinstance(tools, list | tuple) else []


def stand_in(context: ChatContext, names: Mapping[str, None]) -> None:
    """Puts tools that do not exist among the run's own, for the framework answers calls of them without asking."""
    if not names:
        return
    made = [Unknown(name=name, func=_nothing, input_model={"type": "object", "properties": {}}) for name in names]
    options: Any = context.options
    live = options.get("tools")
    if isinstance(live, list):
        live.extend(made)
    else:
        options["tools"] = made


def _nothing() -> str:
    raise MiddlewareFailure("a tool that does not exist was to be run")


def problem_of(tool: FunctionTool, arguments: str) -> str:
    """Why the framework would not take the arguments, in words."""
    model = tool.input_model
    try:
        if model is None:
            json.loads(arguments or "{}")
        else:
            model.model_validate_json(arguments or "{}")
    except ValidationError as exc:
        assert model is not None
        return "; ".join((misfit(exc), *_extra(model, arguments)))
    except ValueError as exc:
        return str(exc)
    return ""


def _extra(model: type[BaseModel], arguments: str) -> Iterator[str]:
    """What the tool does not declare, where its arguments do not fit anyhow."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        return
    for name in given if isinstance(given, dict) else ():
        if name not in model.model_fields:
            yield f"`{name}`: Extra inputs are not permitted"


# What comes and goes, in the engine's words.


def reply_of(response: ChatResponse[Any], calls: Sequence[Content], arguments: Mapping[str, str]) -> m.Reply:
    asked = tuple(m.ToolCall(id_of(each), each.name or "", arguments[id_of(each)]) for each in calls)
    finish = _FINISHES.get(str(response.finish_reason or ""), "stop")
    return m.Reply(
        m.Message("assistant", response.text, asked), finish, _usage(response.usage_details), response.model or ""
    )


def _usage(details: Mapping[str, Any] | None) -> m.Usage | None:
    if not details:
        return None
    keys = ("input_token_count", "output_token_count", "cache_read_input_token_count")
    more = ("cache_creation_input_token_count", "reasoning_output_token_count")
    return m.Usage(*(int(details.get(key) or 0) for key in (*keys, *more)))


def answer_of(answer: Answer, last: ChatResponse[Any] | None) -> ChatResponse[Any]:
    """What the framework's loop gets: the reply, or the end's text without any call."""
    if answer.outcome is None:
        assert last is not None
        return last
    if answer.reply is not None and last is not None and not answer.reply.message.tool_calls:
        return last
    usage = last.usage_details if last is not None else None
    return ChatResponse(messages=[Message("assistant", [answer.text])], usage_details=usage, finish_reason="stop")


def rest_of(answer: Answer, said: bool) -> list[ChatResponseUpdate]:
    """What a stream still has to say at the run's end."""
    assert answer.outcome is not None
    if answer.outcome.status in ("completed", "finalized"):
        text = "" if said else answer.text
    else:
        text = ("\n" if said else "") + stopped(answer.outcome)
    return [ChatResponseUpdate(contents=[Content.from_text(text)], role="assistant")] if text else []


def failure_of(exc: Exception, text: str = "") -> Failed:
    name = type(exc).__name__
    otherwise = next((reason for word, reason in _REASONS if word in name), "unknown")
    return failed(exc, text=text, delivered=bool(text), otherwise=otherwise)


def message_of(message: Message) -> m.Message:
    role: Any = message.role if message.role in ("system", "user", "assistant", "tool") else "user"
    return m.Message(role, message.text)


def contents_of(response: ChatResponse[Any]) -> list[Content]:
    return [content for message in response.messages for content in message.contents]


def characters_of(content: Content) -> int:
    """How many characters of a message's part a model reads."""
    if content.type == "function_call":
        return len(content.name or "") + len(json_of(content.arguments))
    if content.type == "function_result":
        return len(text_of(content.result))
    return len(content.text or "")


def id_of(call: Content) -> str:
    return call.call_id or call.id or ""


def json_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)


def text_of(result: Any) -> str:
    if isinstance(result, list):
        return "\n".join(getattr(each, "text", None) or "" for each in result)
    return str(result)


def occurrence_of(context: FunctionInvocationContext) -> str | None:
    return context.metadata.get("function_call_occurrence_id")
