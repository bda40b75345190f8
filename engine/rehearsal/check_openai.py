"""What the Chat Completions API refuses, as strictly as the real one: the proof that a transcript is valid.

Returns the first problem in the provider's words and the parameter it is about; never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MOST_TOOLS: Final = 128
LONGEST_ID: Final = 40
_KEYS = """model messages tools tool_choice parallel_tool_calls stream stream_options max_tokens max_completion_tokens
temperature top_p stop n seed user metadata store response_format logprobs top_logprobs logit_bias
presence_penalty frequency_penalty reasoning_effort verbosity service_tier modalities audio prediction
prompt_cache_key prompt_cache_retention safety_identifier web_search_options"""
KNOWN_KEYS: Final = frozenset(_KEYS.split())


class Problem(NamedTuple):
    """Why a request is refused, and the parameter it is about (``messages.[3].role``)."""

    message: str
    param: str


def check(body: Any) -> Problem | None:
    """The first reason why this body would be answered with status 400."""
    if not isinstance(body, dict):
        return Problem("We could not parse the JSON body of your request: it must be an object.", "")
    for problems in (_top(body), _tools(body), _messages(body.get("messages"))):
        for problem in problems:
            return problem
    return None


def _top(body: dict[str, Any]) -> Iterator[Problem]:
    for key in body:
        if key not in KNOWN_KEYS:
            yield Problem(f"Unrecognized request argument supplied: {key}", key)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield Problem("you must provide a model parameter", "model")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield Problem("Invalid 'messages': expected a non-empty array.", "messages")
    for key in ("max_tokens", "max_completion_tokens", "n"):
        if key in body and not (type(body[key]) is int and body[key] >= 1):
            yield Problem(f"Invalid '{key}': expected an integer of at least 1.", key)
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield Problem(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", "max_tokens"
        )
    if not isinstance(body.get("stream", False), bool):
        yield Problem("Invalid type for 'stream': expected a boolean.", "stream")
    if "stream_options" in body and body.get("stream") is not True:
        yield Problem("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")


def _tools(body: dict[str, Any]) -> Iterator[Problem]:
    tools = body.get("tools")
    if tools is None:
        for key in ("tool_choice", "parallel_tool_calls"):
            if key in body:
                yield Problem(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", key)
        return
    if not isinstance(tools, list) or not tools:
        yield Problem("Invalid 'tools': [] is too short, expected an array with at least 1 element.", "tools")
        return
    if len(tools) > MOST_TOOLS:
        yield Problem(f"Invalid 'tools': array too long, expected at most {MOST_TOOLS} elements.", "tools")
    names: set[str] = set()
    for n, tool in enumerate(tools):
        yield from _tool(tool, f"tools[{n}]", names)
    yield from _tool_choice(body.get("tool_choice", "auto"), names)


def _tool(tool: Any, at: str, names: set[str]) -> Iterator[Problem]:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or tool.get("type") != "function":
        yield Problem(f"Invalid '{at}': expected an object of type 'function' with a 'function'.", at)
        return
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Problem(f"Invalid '{at}.function.name': does not match '^[a-zA-Z0-9_-]{{1,64}}$'.", f"{at}.function.name")
        return
    if name in names:
        yield Problem(f"Invalid '{at}.function.name': the name '{name}' is declared twice.", f"{at}.function.name")
    names.add(name)
    parameters = function.get("parameters", {"type": "object"})
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        yield Problem(
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"'.",
            f"{at}.function.parameters",
        )


def _tool_choice(choice: Any, names: set[str]) -> Iterator[Problem]:
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            yield Problem(
                f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', 'required'.", "tool_choice"
            )
        return
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        yield Problem("Invalid value for 'tool_choice': expected a mode or a function.", "tool_choice")
    elif name not in names:
        yield Problem(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")


def _messages(messages: Any) -> Iterator[Problem]:
    """Roles and contents, and that each tool call is answered at once, by exactly one result."""
    waiting: list[str] = []  # ids of the calls of the last assistant message that have no result yet
    answered: set[str] = set()
    opened_at = -1
    for n, message in enumerate(messages):
        at = f"messages.[{n}]"
        if not isinstance(message, dict):
            yield Problem(f"Invalid type for '{at}': expected an object.", at)
            return
        role = message.get("role")
        if role == "tool":
            yield from _result(message, at, waiting, answered)
            continue
        if waiting:
            yield _unanswered(waiting, opened_at)
        answered = set()
        if role == "assistant":
            yield from _assistant(message, at)
            waiting, opened_at = [str(call.get("id")) for call in message.get("tool_calls") or ()], n
        elif role in ("system", "developer", "user"):
            if not _is_content(message.get("content"), may_be_empty=role != "user"):
                yield Problem(
                    f"Invalid value for '{at}.content': expected a string or an array of parts.", f"{at}.content"
                )
        else:
            yield Problem(
                f"Invalid value: '{role}'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool'.",
                f"{at}.role",
            )
    if waiting:
        yield _unanswered(waiting, opened_at)


def _unanswered(waiting: list[str], at: int) -> Problem:
    return Problem(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(waiting)}",
        f"messages.[{at}].tool_calls",
    )


def _result(message: dict[str, Any], at: str, waiting: list[str], answered: set[str]) -> Iterator[Problem]:
    own = message.get("tool_call_id")
    if not isinstance(own, str) or not own:
        yield Problem(f"Missing parameter 'tool_call_id': {at} has role 'tool'.", f"{at}.tool_call_id")
    elif own in waiting:
        waiting.remove(own)
        answered.add(own)
    elif own in answered:
        yield Problem(
            f"Duplicate value for 'tool_call_id' of '{own}': it has been answered already.", f"{at}.tool_call_id"
        )
    else:
        yield Problem(
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'.",
            f"{at}.role",
        )
    if not _is_content(message.get("content"), may_be_empty=True):
        yield _bad_content(at)


def _assistant(message: dict[str, Any], at: str) -> Iterator[Problem]:
    calls = message.get("tool_calls")
    content = message.get("content")
    if "tool_calls" in message and (not isinstance(calls, list) or not calls):
        yield Problem(f"Invalid '{at}.tool_calls': expected an array with at least 1 element.", f"{at}.tool_calls")
        return
    if content is None and not calls and not message.get("refusal"):
        yield Problem(f"Invalid value for '{at}.content': expected a string, got null.", f"{at}.content")
    if content is not None and not _is_content(content, may_be_empty=True):
        yield _bad_content(at)
    seen: set[str] = set()
    for k, call in enumerate(calls or ()):
        yield from _call(call, f"{at}.tool_calls[{k}]", seen)


def _call(call: Any, at: str, seen: set[str]) -> Iterator[Problem]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type") != "function":
        yield Problem(f"Invalid '{at}': expected an object of type 'function' with a 'function'.", at)
        return
    own = call.get("id")
    if not isinstance(own, str) or not own:
        yield Problem(f"Missing required parameter: '{at}.id'.", f"{at}.id")
        return
    if len(own) > LONGEST_ID:
        yield Problem(f"Invalid '{at}.id': string too long, expected at most {LONGEST_ID} characters.", f"{at}.id")
    if own in seen:
        yield Problem(f"Duplicate value for 'id' of '{own}' in one message.", f"{at}.id")
    seen.add(own)
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Problem(f"Invalid '{at}.function.name': does not match '^[a-zA-Z0-9_-]{{1,64}}$'.", f"{at}.function.name")
    if not isinstance(function.get("arguments"), str):
        yield Problem(f"Invalid type for '{at}.function.arguments': expected a string.", f"{at}.function.arguments")


def _is_content(content: Any, *, may_be_empty: bool) -> bool:
    if isinstance(content, str):
        return bool(content) or may_be_empty
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)


def _bad_content(at: str) -> Problem:
    return Problem(f"Invalid value for '{at}.content': expected a string or an array of parts.", f"{at}.content")
