"""Requests, replies and results of Google ADK in the engine's words, and back. Decides nothing."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from msgspec import convert, to_builtins

from engine.adapters.acts import Failed, Kind
from engine.adapters.raised import failed
from engine.core import messages as m
from engine.core.decisions import Call
from engine.core.outcome import Outcome
from engine.run import sizes

OUTCOME = "policy_outcome"
"""Where the last event of a run has its outcome: in ``custom_metadata``, as plain data."""

_KINDS: Mapping[str, Kind] = {"transfer_to_agent": "handoff", "set_model_response": "output"}
_FINISHES: Mapping[str, m.Finish] = {"MAX_TOKENS": "length", "SAFETY": "content_filter"}
_FILTERED = ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY")
_ANSWERED = ("STOP", "MAX_TOKENS")
"""Reasons to finish that are no failure, whatever has been said."""


def kind_of(name: str) -> Kind:
    return _KINDS.get(name, "function")


# Requests.


def request_of(request: LlmRequest, call: Call, model: str) -> LlmRequest:
    """The request of one attempt: a copy, so that nothing of it is left in the loop's own."""
    said = [*call.notices, call.instruction] if call.instruction else [*call.notices]
    contents = [*request.contents, *(types.Content(role="user", parts=[types.Part(text=text)]) for text in said)]
    config = request.config.model_copy()
    if config.http_options is not None and config.http_options.retry_options is not None:
        config.http_options = config.http_options.model_copy(update={"retry_options": None})
    if call.final:
        config.tools = _declared(config.tools, lambda name: kind_of(name) == "output")
        config.tool_config = None
    elif call.hidden:
        config.tools = _declared(config.tools, lambda name: name not in call.hidden)
    largest = config.max_output_tokens
    if call.max_output is not None and (largest is None or largest > call.max_output):
        config.max_output_tokens = call.max_output
    return request.model_copy(update={"contents": contents, "config": config, "model": model})


def _declared(tools: Any, wanted: Any) -> Any:
    """Of the tools only those whose names are ``wanted``."""
    kept = []
    for tool in tools or ():
        declared = [each for each in getattr(tool, "function_declarations", None) or () if wanted(each.name or "")]
        if declared:
            kept.append(tool.model_copy(update={"function_declarations": declared}))
    return kept or None


def characters_of(content: types.Content) -> int:
    """How many characters of a content a model reads."""
    total = 0
    for part in content.parts or ():
        total += len(part.text or "")
        if part.function_call is not None:
            total += len(part.function_call.name or "") + len(json_of(part.function_call.args))
        if part.function_response is not None:
            total += len(text_of(part.function_response.response))
    return total


def declared(request: LlmRequest) -> int:
    """How many characters the declarations of the tools have."""
    specs = []
    for tool in request.config.tools or ():
        for each in getattr(tool, "function_declarations", None) or ():
            schema = each.parameters_json_schema or (
                each.parameters.model_dump(exclude_none=True) if each.parameters is not None else {}
            )
            specs.append(m.ToolSpec(each.name or "", each.description or "", schema))
    return sizes.declared(specs)


def messages_of(request: LlmRequest) -> list[m.Message]:
    """The conversation, as far as it is text."""
    return [m.Message("assistant" if each.role == "model" else "user", said(each)) for each in request.contents]


def answers_in(contents: Iterable[types.Content]) -> Iterator[types.FunctionResponse]:
    for content in contents:
        for part in content.parts or ():
            if part.function_response is not None:
                yield part.function_response


# Replies.


def said(content: types.Content | None) -> str:
    """The text of a content, without a model's thoughts."""
    parts = content.parts if content is not None and content.parts else ()
    return "".join(part.text for part in parts if part.text and not part.thought)


def calls_of(response: LlmResponse) -> list[types.FunctionCall]:
    parts = response.content.parts if response.content is not None and response.content.parts else ()
    return [part.function_call for part in parts if part.function_call is not None]


def joined(pieces: list[LlmResponse]) -> LlmResponse:
    """One reply of what a model has said for good: some say text first, and then their calls."""
    if not pieces:
        return LlmResponse()
    last = pieces[-1]
    if len(pieces) == 1:
        return last
    parts = [part for each in pieces for part in (each.content.parts or () if each.content is not None else ())]
    usage = next((each.usage_metadata for each in reversed(pieces) if each.usage_metadata is not None), None)
    content = types.Content(role="model", parts=parts)
    return last.model_copy(update={"content": content, "usage_metadata": usage})


def named(response: LlmResponse) -> None:
    """Gives calls an id where the provider has given none, as the framework does later."""
    for call in calls_of(response):
        if not call.id:
            call.id = f"adk-{uuid.uuid4()}"


def reply_of(response: LlmResponse) -> m.Reply:
    calls = tuple(m.ToolCall(call.id or "", call.name or "", json_of(call.args)) for call in calls_of(response))
    reason = _finish(response)
    finish: m.Finish = "tool_calls" if calls else _FINISHES.get(reason, "stop")
    return m.Reply(
        m.Message("assistant", said(response.content), calls), finish, usage_of(response), response.model_version or ""
    )


def usage_of(response: LlmResponse) -> m.Usage | None:
    told = response.usage_metadata
    if told is None:
        return None
    sent = (told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0)
    written = told.candidates_token_count or 0
    if told.total_token_count:  # some count thoughts among the candidates, some beside them
        written = max(written, told.total_token_count - sent)
    return m.Usage(sent, written, told.cached_content_token_count or 0, 0, told.thoughts_token_count or 0)


def _finish(response: LlmResponse) -> str:
    reason = response.finish_reason
    return str(getattr(reason, "name", reason) or "")


def refusal_of(response: LlmResponse) -> Failed | None:
    """Why a response is none: models of the framework tell some failures without raising."""
    if response.error_code is None or calls_of(response) or said(response.content):
        return None
    code = str(getattr(response.error_code, "name", response.error_code))
    if code in _ANSWERED or _finish(response) in _ANSWERED:
        return None
    reason = "content_filter" if code in _FILTERED else "unknown"
    return Failed(reason, response.error_message or code, usage=usage_of(response))


def failure_of(exc: Exception, text: str = "") -> Failed:
    return failed(exc, text=text, delivered=bool(text))


# Tools.


def problem_of(tool: BaseTool | None, arguments: Mapping[str, Any]) -> str:
    """Which parameters a function lacks, in words: the framework answers such a call without running it."""
    if not isinstance(tool, FunctionTool):
        return ""
    try:
        parameters = inspect.signature(tool.func).parameters
    except (TypeError, ValueError):
        return ""
    missing = [name for name in tool._get_mandatory_args() if name not in arguments]
    if not missing:
        return ""
    extra = [name for name in arguments if name not in parameters]
    told = [f"`{name}`: Field required" for name in missing]
    return "; ".join([*told, *(f"`{name}`: Extra inputs are not permitted" for name in extra)])


def json_of(arguments: Any) -> str:
    return json.dumps(arguments or {}, default=str)


def text_of(result: Any) -> str:
    """What a model reads of a tool's result, near enough to measure and to compare it."""
    return result if isinstance(result, str) else json.dumps(result, default=str, sort_keys=True)


# The end.


def ending(outcome: Outcome, text: str, last: LlmResponse | None) -> LlmResponse:
    """What is shown at the end of a run: the model's own answer, or ``text``. No call is left but one that answers."""
    told = {OUTCOME: to_builtins(outcome)}
    calls = calls_of(last) if last is not None else []
    kept = [call for call in calls if kind_of(call.name or "") == "output"]
    if last is not None and last.content is not None and (kept or not calls):
        parts = [part for part in last.content.parts or () if part.function_call in (None, *kept)]
        content = types.Content(role="model", parts=parts)
        return last.model_copy(update={"content": content, "custom_metadata": {**(last.custom_metadata or {}), **told}})
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, finish_reason=types.FinishReason.STOP, custom_metadata=told, turn_complete=True)


def outcome_of(event: Any) -> Outcome | None:
    """How the run has ended whose last event this is; ``None`` for any other event."""
    told = (getattr(event, "custom_metadata", None) or {}).get(OUTCOME)
    return convert(told, Outcome) if told is not None else None
