"""What the Messages API refuses, as strictly as the real one: the proof that a transcript is valid.

Returns the first problem in the provider's words; never raises. Stricter than the API in one point:
neighbours of one role are refused, not joined, because a client that sends them has lost the turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_KEYS = """model messages max_tokens system tools tool_choice stream temperature top_p top_k stop_sequences metadata
thinking service_tier container mcp_servers context_management output_config output_format cache_control"""
_KNOWN_KEYS: Final = frozenset(_KEYS.split())
_ASSISTANT_ONLY: Final = ("tool_use", "thinking", "redacted_thinking", "server_tool_use")


def check(body: Any, headers: dict[str, str]) -> str | None:
    """The first reason why this request would be answered with status 400."""
    if "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    if not isinstance(body, dict):
        return "The request body is not valid JSON: expected an object"
    for problems in (_top(body), _tools(body), _messages(body)):
        for problem in problems:
            return problem
    return None


def _top(body: dict[str, Any]) -> Iterator[str]:
    for key in body:
        if key not in _KNOWN_KEYS:
            yield f"{key}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    most = body.get("max_tokens")
    if most is None:
        yield "max_tokens: Field required"
    elif type(most) is not int or most < 1:
        yield "max_tokens: Input should be an integer greater than or equal to 1"
    if not isinstance(body.get("messages"), list):
        yield "messages: Field required"
    elif not body["messages"]:
        yield "messages: at least one message is required"
    if not isinstance(body.get("stream", False), bool):
        yield "stream: Input should be a valid boolean"
    system = body.get("system", "x")
    if isinstance(system, list):
        for n, block in enumerate(system):
            yield from _text_block(block, f"system.{n}")
    elif not isinstance(system, str) or not system.strip():
        yield "system: text content blocks must be non-empty"


def _tools(body: dict[str, Any]) -> Iterator[str]:
    tools = body.get("tools", [])
    if not isinstance(tools, list):
        yield "tools: Input should be a valid array"
        return
    names: set[str] = set()
    for n, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"tools.{n}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            return
        if name in names:
            yield "tools: Tool names must be unique."
        names.add(name)
        if tool.get("type", "custom") == "custom":
            schema = tool.get("input_schema")
            if not isinstance(schema, dict) or schema.get("type") != "object":
                yield f"tools.{n}.custom.input_schema.type: Input should be 'object'"
    if "tool_choice" in body:
        yield from _tool_choice(body["tool_choice"], names)


def _tool_choice(choice: Any, names: set[str]) -> Iterator[str]:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        yield "tool_choice: Input tag should be 'auto', 'any', 'tool' or 'none'"
    elif not names:
        yield "tool_choice: tool_choice may only be specified while providing tools"
    elif kind == "tool" and choice.get("name") not in names:
        yield f"tool_choice.tool.name: Tool '{choice.get('name')}' not found in provided tools"


def _messages(body: dict[str, Any]) -> Iterator[str]:
    messages = body["messages"]
    open_ids: list[str] = []
    used_ids: set[str] = set()
    before: Any = None
    for n, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            yield f"messages.{n}.role: Input should be 'user' or 'assistant'"
            return
        if n == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        if role == before:
            yield f'messages.{n}: roles must alternate between "user" and "assistant", but found two "{role}" in a row'
        before = role
        blocks = message.get("content")
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not isinstance(blocks, list) or not blocks:
            yield f"messages.{n}: all messages must have non-empty content"
            return
        yield from _blocks(blocks, role, f"messages.{n}")
        results = [str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        yield from _pairing(n, results, open_ids)
        open_ids = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        yield from _fresh_ids(n, open_ids, used_ids)
        if (open_ids or results) and not body.get("tools"):
            yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
    if open_ids:
        yield _unanswered(len(messages) - 1, open_ids)
    yield from _last(messages)


def _pairing(n: int, results: list[str], open_ids: list[str]) -> Iterator[str]:
    """The results of message ``n`` against the calls of the message before it."""
    missing = [own for own in open_ids if own not in results]
    if missing:
        yield _unanswered(n - 1, missing)
    for k, own in enumerate(results):
        if own not in open_ids:
            yield (
                f"messages.{n}.content.{k}: unexpected `tool_use_id` found in `tool_result` blocks: {own}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if own in results[:k]:
            yield (
                f"messages.{n}.content.{k}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {own}"
            )


def _unanswered(n: int, ids: list[str]) -> str:
    return (
        f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _fresh_ids(n: int, ids: list[str], used: set[str]) -> Iterator[str]:
    for own in ids:
        if own in used:
            yield f"messages.{n}: `tool_use` ids must be unique"
        used.add(own)


def _last(messages: list[Any]) -> Iterator[str]:
    """An unfinished assistant turn may stand last, but not end in white space."""
    last = messages[-1]
    if last["role"] != "assistant":
        return
    content = last["content"]
    text = content if isinstance(content, str) else content[-1].get("text", "")
    if isinstance(text, str) and text != text.rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


def _blocks(blocks: list[Any], role: str, at: str) -> Iterator[str]:
    other_seen = False
    for k, block in enumerate(blocks):
        here = f"{at}.content.{k}"
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            yield f"{here}.type: Field required"
            return
        if kind == "text":
            yield from _text_block(block, here)
        elif kind == "tool_use":
            yield from _tool_use(block, here)
        elif kind == "tool_result":
            yield from _tool_result(block, here, role, other_seen)
        elif kind == "thinking" and not (block.get("signature") and isinstance(block.get("thinking"), str)):
            yield f"{here}.thinking.signature: Field required"
        if kind in _ASSISTANT_ONLY and role != "assistant":
            yield f"{here}: `{kind}` blocks can only be in `assistant` messages"
        other_seen = other_seen or kind != "tool_result"


def _text_block(block: Any, at: str) -> Iterator[str]:
    text = block.get("text") if isinstance(block, dict) else None
    if not isinstance(text, str):
        yield f"{at}.text: Field required"
    elif not text:
        yield f"{at}: text content blocks must be non-empty"
    elif not text.strip():
        yield f"{at}: text content blocks must contain non-whitespace text"


def _tool_use(block: dict[str, Any], at: str) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        yield f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        yield f"{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{at}.tool_use.input: Input should be a valid dictionary"


def _tool_result(block: dict[str, Any], at: str, role: str, other_seen: bool) -> Iterator[str]:
    if role != "user":
        yield f"{at}: `tool_result` blocks can only be in `user` messages"
    if other_seen:
        yield f"{at}: `tool_result` blocks must come first in the content of a message"
    content = block.get("content", "")
    if not isinstance(content, (str, list)):
        yield f"{at}.tool_result.content: Input should be a valid string or array"
    if block.get("is_error") is True and not content:
        yield f"{at}.tool_result: content cannot be empty if `is_error` is true"
