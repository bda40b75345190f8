"""LangChain's words for what passes in a call, and ours: requests, messages, tools.

Knows no run and decides nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain.agents.structured_output import AutoStrategy, ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command
from pydantic import BaseModel, TypeAdapter, ValidationError

from engine.adapters.acts import Kind, Ran, Replied
from engine.adapters.raised import misfit
from engine.core.decisions import Call
from engine.core.messages import Finish, Message, Reply, ToolCall, Usage
from engine.run import sizes

USUAL_OUTPUT = 16_384
"""The largest output (tokens) of a request in a measured run, where the model says none: as our own clients have it."""

_FINISHES: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "SAFETY": "content_filter",
    "pause_turn": "pause",
}
_MOST_FORMS = 1024
_object: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


# Requests.


def model_name(model: BaseChatModel) -> str:
    """The provider's name of a model, for prices and the log."""
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    return name if isinstance(name, str) else ""


def largest_output(model: BaseChatModel, settings: Mapping[str, Any]) -> int | None:
    """The largest output (tokens) that a call asks for, ``None``: as much as the model gives."""
    found = settings.get("max_tokens") or getattr(model, "max_tokens", None)
    return found if isinstance(found, int) else None


def size(request: ModelRequest[Any]) -> int:
    """About how many tokens a request has."""
    characters = len(request.system_prompt or "")
    for message in request.messages:
        characters += len(message.text)
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            characters += len(call["name"]) + len(json.dumps(call["args"]))
    return sizes.tokens(characters + sum(_form(tool).size for tool in request.tools))


def asked(call: Call, request: ModelRequest[Any], model: BaseChatModel) -> ModelRequest[Any]:
    """The request as the decision has it: its model, its tools, its instruction as last message, its largest output."""
    more: dict[str, Any] = {}
    if model is not request.model:
        more["model"] = model
    if call.tools == "strip":
        more |= {"tools": [], "tool_choice": None}
    elif call.tools == "forbid":
        more["tool_choice"] = "none"
    elif call.hidden:
        more["tools"] = [tool for tool in request.tools if tool_name(tool) not in call.hidden]
    if said := (*call.notices, *((call.instruction,) if call.instruction else ())):
        more["messages"] = [*request.messages, *map(HumanMessage, said)]
    if call.max_output is not None:
        more["model_settings"] = {**request.model_settings, "max_tokens": call.max_output}
    return request.override(**more) if more else request


def tool_name(tool: BaseTool | dict[str, Any]) -> str:
    """The name of a tool, also of one that the provider runs."""
    if isinstance(tool, BaseTool):
        return tool.name
    inner = tool.get("function")
    return str((inner if isinstance(inner, dict) else tool).get("name") or tool.get("type") or "")


def output_tools(request: ModelRequest[Any]) -> frozenset[str]:
    """The names of tools that are no tools, but the form of the answer."""
    form: Any = request.response_format
    if form is None:
        return frozenset()
    if isinstance(form, AutoStrategy):
        form = ToolStrategy(schema=form.schema)
    return frozenset(spec.name for spec in form.schema_specs) if isinstance(form, ToolStrategy) else frozenset()


def neutral(messages: Sequence[AnyMessage]) -> tuple[Message, ...]:
    """A conversation in our own form, for functions that a policy names."""
    return tuple(map(_neutral, messages))


def _neutral(message: AnyMessage) -> Message:
    if isinstance(message, AIMessage):
        calls = tuple(ToolCall(c["id"] or "", c["name"], json.dumps(c["args"])) for c in message.tool_calls)
        return Message("assistant", message.text, calls)
    if isinstance(message, ToolMessage):
        return Message("tool", message.text, tool_call_id=message.tool_call_id, is_error=message.status == "error")
    return Message("system" if message.type == "system" else "user", message.text)


# Replies.


def whole(message: AIMessage) -> tuple[AIMessage, dict[str, str]]:
    """A reply whose calls all have an id of their own, and are all among its tool calls; with the raw arguments (by
    id) of those that are no JSON: LangChain puts them aside, and would end the run without an answer to them."""
    broken: dict[str, str] = {}
    calls = [*message.tool_calls]
    for call in message.invalid_tool_calls:
        id = call["id"] or _new_id()
        broken[id] = call["args"] or ""
        calls.append({"name": call["name"] or "unknown", "args": {}, "id": id, "type": "tool_call"})
    seen: set[str] = set()
    for position, each in enumerate(calls):
        if not each["id"] or each["id"] in seen:
            calls[position] = {**each, "id": _new_id()}
        seen.add(calls[position]["id"] or "")
    if calls == message.tool_calls:
        return message, broken
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []}), broken


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def replied(
    request: ModelRequest[Any], response: ModelResponse[Any], message: AIMessage, broken: dict[str, str]
) -> Replied:
    """What an attempt brought: ``message`` is the reply of ``response``, made ``whole``."""
    calls = tuple(
        ToolCall(call["id"] or "", call["name"], broken.get(call["id"] or "") or json.dumps(call["args"]))
        for call in message.tool_calls
    )
    reply = Reply(Message("assistant", message.text, calls), finish(message), usage(message), reply_model(message))
    if not calls:
        return Replied(reply)
    outputs = output_tools(request)
    tools = {tool_name(tool): tool for tool in request.tools}
    answered = {m.tool_call_id: m for m in response.result if isinstance(m, ToolMessage)}
    accepted = response.structured_response is not None
    kinds: dict[str, Kind] = {}
    unregistered: set[str] = set()
    problems: dict[str, str] = {}
    for call, args in zip(calls, message.tool_calls, strict=True):
        if call.name in outputs:
            if accepted:
                kinds[call.id] = "output"
            else:
                problems[call.id] = answered[call.id].text if call.id in answered else "not the form of an answer"
        elif call.name not in tools:
            unregistered.add(call.id)
        elif problem := _no_json(broken[call.id]) if call.id in broken else _misfit(tools[call.name], args["args"]):
            problems[call.id] = problem
    return Replied(reply, kinds, frozenset(unregistered), problems)


def finish(message: AIMessage) -> Finish:
    """Why a reply ends, as its provider says."""
    said = message.response_metadata
    word = said.get("finish_reason") or said.get("stop_reason") or said.get("done_reason")
    return _FINISHES.get(str(word), "tool_calls" if message.tool_calls else "stop")


def reply_model(message: AIMessage) -> str:
    """The model that has answered, as it calls itself."""
    return str(message.response_metadata.get("model_name") or "")


def usage(message: AIMessage) -> Usage | None:
    """The tokens of a reply, ``None`` where its provider reported none."""
    told = message.usage_metadata
    if told is None:
        return None
    sent, made = told.get("input_token_details") or {}, told.get("output_token_details") or {}
    return Usage(
        told["input_tokens"],
        told["output_tokens"],
        sent.get("cache_read") or 0,
        sent.get("cache_creation") or 0,
        made.get("reasoning") or 0,
    )


def _no_json(raw: str) -> str:
    try:
        _object.validate_json(raw)
    except ValidationError as exc:
        return misfit(exc)
    return "not the arguments of a tool"


class _Form(NamedTuple):
    """A tool as a model sees it: ``schema`` of its arguments if there is one to hold them against, ``size`` of its
    declaration in characters."""

    tool: BaseTool | dict[str, Any]
    schema: type[BaseModel] | None
    size: int


_forms: dict[int, _Form] = {}
"""What the model sees of a tool, which LangChain makes anew whenever it is asked."""


def _form(tool: BaseTool | dict[str, Any]) -> _Form:
    known = _forms.get(id(tool))
    if known is None or known.tool is not tool:
        if len(_forms) >= _MOST_FORMS:
            _forms.clear()
        schema = tool.tool_call_schema if isinstance(tool, BaseTool) else None
        model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
        declared = convert_to_openai_tool(tool)["function"] if isinstance(tool, BaseTool) else tool
        known = _forms[id(tool)] = _Form(tool, model, len(json.dumps(declared, default=str)))
    return known


def _misfit(tool: BaseTool | dict[str, Any], args: dict[str, Any]) -> str:
    """What arguments lack, as the tool's own form has it."""
    schema = _form(tool).schema
    if schema is None:
        return ""
    try:
        schema.model_validate(args)
    except ValidationError as exc:
        return misfit(exc)
    return ""


# Tools.


def ran(value: Any, last: bool, usage: Usage | None) -> Ran:
    """What a tool returned; ``last``: with it the run is answered. ``usage``: what it has used of models itself."""
    messages = [value] if isinstance(value, ToolMessage) else _messages(value)
    text = "\n".join(message.text for message in messages)
    failed = any(message.status == "error" for message in messages)
    return Ran("failed" if failed else "ok", text, value, usage, "answer" if last and not failed else "")


def _messages(value: Any) -> list[ToolMessage]:
    if isinstance(value, list):
        return [message for each in value for message in ([each] if isinstance(each, ToolMessage) else _messages(each))]
    update = value.update if isinstance(value, Command) else None
    found = update.get("messages") if isinstance(update, dict) else None
    return [m for m in found if isinstance(m, ToolMessage)] if isinstance(found, list) else []


def refusal(text: str, id: str, name: str) -> ToolMessage:
    """The result of a call that was not carried out, or failed."""
    return ToolMessage(text, tool_call_id=id, name=name, status="error")


def answer(text: str, given: AIMessage | None) -> AIMessage:
    """The last message of a run: ``given`` without calls, or ``text`` where there is no answer."""
    if given is None:
        return AIMessage(text)
    return given.model_copy(update={"tool_calls": [], "invalid_tool_calls": []}) if given.tool_calls else given
