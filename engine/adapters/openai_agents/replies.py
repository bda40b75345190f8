"""The SDK's responses as replies of ours, and what a stopped run answers as a response of the SDK."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from agents.handoffs import Handoff
from agents.items import ModelResponse
from agents.tool import FunctionTool, Tool
from agents.usage import Usage as SdkUsage
from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
)
from openai.types.responses.response_usage import ResponseUsage

from engine.adapters.acts import Kind, Replied
from engine.adapters.openai_agents.gates import Gate
from engine.core.messages import Message, Reply, ToolCall, Usage

_MESSAGES = ("message", "reasoning", "compaction")


def replied(output: Sequence[Any], usage: Usage | None, tools: Iterable[Tool], handoffs: Iterable[Handoff]) -> Replied:
    """What the model has said, with what it asks for: calls of functions, handoffs, and what was or is done without
    the loop's function tools (``hosted``)."""
    functions = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
    names = {handoff.tool_name for handoff in handoffs}
    calls: list[ToolCall] = []
    kinds: dict[str, Kind] = {}
    problems: dict[str, str] = {}
    for item in output:
        if isinstance(item, ResponseFunctionToolCall):
            calls.append(ToolCall(item.call_id, item.name, item.arguments))
            if item.name in names:
                kinds[item.call_id] = "handoff"
            elif (gate := _gate(functions.get(item.name))) and (problem := gate.problem(item.arguments)):
                problems[item.call_id] = problem
        elif (kind := getattr(item, "type", "")) not in _MESSAGES and kind.endswith("_call"):
            id = str(getattr(item, "call_id", None) or getattr(item, "id", None) or uuid4().hex)
            calls.append(ToolCall(id, kind, "{}", kind="hosted"))
            kinds[id] = "hosted"
    known = functions.keys() | names
    unknown = frozenset(each.id for each in calls if each.kind == "function" and each.name not in known)
    message = Message("assistant", _text(output), tuple(calls))
    return Replied(Reply(message, usage=usage), kinds, unknown, problems)


def _gate(tool: FunctionTool | None) -> Gate | None:
    gate = None if tool is None else tool.on_invoke_tool
    return gate if isinstance(gate, Gate) else None


def _text(output: Iterable[Any]) -> str:
    """All that was said; a refusal is said too."""
    said: list[str] = []
    for item in output:
        if isinstance(item, ResponseOutputMessage):
            for part in item.content:
                if isinstance(part, ResponseOutputText):
                    said.append(part.text)
                elif isinstance(part, ResponseOutputRefusal):
                    said.append(part.refusal)
    return "".join(said)


def used(usage: SdkUsage | ResponseUsage | None) -> Usage | None:
    """Tokens; ``None`` where the provider has said nothing."""
    if usage is None or not (usage.input_tokens or usage.output_tokens):
        return None
    sent, made = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        getattr(sent, "cached_tokens", 0) or 0,
        getattr(sent, "cache_write_tokens", 0) or 0,
        getattr(made, "reasoning_tokens", 0) or 0,
    )


def said(text: str, usage: SdkUsage | None = None) -> ModelResponse:
    """A response that is this text alone."""
    return ModelResponse(output=[_message(text)], usage=usage or SdkUsage(), response_id=None)


def said_at_the_end(text: str, response: Response | None) -> Response:
    """The same as the end of a stream; ``response`` is what had come, its usage stays."""
    if response is not None:
        return response.model_copy(update={"output": [_message(text)], "status": "completed"})
    return Response(
        id=f"resp_{uuid4().hex}",
        created_at=0,
        model="",
        object="response",
        output=[_message(text)],
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )


def _message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(
        id=f"msg_{uuid4().hex}", content=[part], role="assistant", status="completed", type="message"
    )


def characters(system: str | None, input: str | Sequence[Any], tools: Iterable[Tool]) -> int:
    """About how many characters of a request a model reads."""
    size = len(system or "") + _length(input)
    for tool in tools:
        if isinstance(tool, FunctionTool):
            size += len(tool.name) + len(tool.description) + len(json.dumps(tool.params_json_schema))
    return size


_READ = ("content", "text", "name", "arguments", "output", "refusal", "summary")


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_length(value[key]) for key in _READ if key in value)
    if isinstance(value, list | tuple):
        return sum(map(_length, value))
    return 0


def in_order(input: str | list[Any], calls: Mapping[str, Any]) -> str | list[Any]:
    """The input with the last results in the order of their calls: the SDK puts those of unknown tools behind."""
    if isinstance(input, str) or len(calls) < 2:
        return input
    place = {id: position for position, id in enumerate(calls)}
    first = len(input)
    while first and _id_of_result(input[first - 1]) in place:
        first -= 1
    return [*input[:first], *sorted(input[first:], key=lambda item: place[_id_of_result(item)])]


def _id_of_result(item: Any) -> str:
    known = isinstance(item, Mapping) and item.get("type") == "function_call_output"
    return str(item.get("call_id")) if known else ""


def conversation(input: str | Sequence[Any]) -> tuple[Message, ...]:
    """The conversation for the functions that a policy names: texts and results, without what is in them beside."""
    if isinstance(input, str):
        return (Message("user", input),)
    return tuple(message for item in input if (message := _said_before(item)) is not None)


def _said_before(item: Any) -> Message | None:
    if not isinstance(item, Mapping):
        return None
    kind, role = item.get("type", "message"), item.get("role")
    if kind == "function_call":
        call = ToolCall(str(item.get("call_id")), str(item.get("name")), str(item.get("arguments")))
        return Message("assistant", "", (call,))
    if kind == "function_call_output":
        return Message("tool", _plain(item.get("output")), tool_call_id=str(item.get("call_id")))
    if role in ("user", "assistant"):
        return Message(role, _plain(item.get("content")))
    return Message("system", _plain(item.get("content"))) if role in ("system", "developer") else None


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
