"""The Messages wire format of Anthropic.

Only the format: HTTP, keys and failures are in ``http_client``. What differs from the neutral
form: system texts stand apart, roles alternate (tool results are part of a user message), and a
history with tool calls is refused when no tools are declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from engine.clients.anthropic_reply import StreamAssembler, parse_reply
from engine.clients.base import ModelError
from engine.clients.http_client import HttpClient
from engine.clients.ids import wire_ids
from engine.clients.wire import decode
from engine.core.messages import Message, Reply, Request, ToolCall

Block = dict[str, Any]


class Anthropic(HttpClient):
    """A model behind ``POST {base_url}/v1/messages``."""

    wire: str = "anthropic"
    default_base_url: ClassVar[str] = "https://api.anthropic.com"
    default_key_env: ClassVar[str] = "ANTHROPIC_API_KEY"
    default_output: ClassVar[int] = 4096
    path: ClassVar[str] = "/v1/messages"
    request_id_header: ClassVar[str] = "request-id"
    reserved_settings: ClassVar[frozenset[str]] = frozenset(
        ["model", "messages", "system", "tools", "tool_choice", "stream"]
    )

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-api-key", key

    def fixed_headers(self) -> Mapping[str, str]:
        return {"anthropic-version": "2023-06-01"}

    def path_below(self, base_path: str) -> str:
        # Other providers' base URLs end in the version; a user who writes it here means the same.
        return "/messages" if base_path.rstrip("/").endswith("/v1") else self.path

    def body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": request.max_output or self.usual_output,
            "messages": _messages(request.messages),
        }
        system = "\n\n".join(m.text for m in request.messages if m.role == "system" and m.text.strip())
        if system:
            body["system"] = system
        body |= _tools(request)
        if request.stream:
            body["stream"] = True
        return body

    def parse(self, body: dict[str, Any], request_id: str) -> Reply:
        return parse_reply(body, request_id, self.bounds.tool_calls)

    def assembler(self) -> StreamAssembler:
        return StreamAssembler(self.bounds.tool_calls)


def _tools(request: Request) -> dict[str, Any]:
    choice = request.tool_choice
    if not request.tools:
        if choice not in ("auto", "none"):
            raise ModelError("host", f"the request forces a tool (`{choice}`) but declares none")
        return _forbidden_tools(request.messages)
    out: dict[str, Any] = {
        "tools": [
            {"name": t.name, "input_schema": t.parameters} | ({"description": t.description} if t.description else {})
            for t in request.tools
        ]
    }
    if choice == "none":
        out["tool_choice"] = {"type": "none"}
    elif choice == "required":
        out["tool_choice"] = {"type": "any"}
    elif choice != "auto":
        if all(tool.name != choice for tool in request.tools):
            raise ModelError("host", f"the request forces the tool `{choice}`, which it does not declare")
        out["tool_choice"] = {"type": "tool", "name": choice}
    return out


def _forbidden_tools(messages: tuple[Message, ...]) -> dict[str, Any]:
    """For a request without tools: the names its history mentions, declared and forbidden.

    The API refuses tool calls in a history when ``tools`` is absent, so a stripped request declares
    what it must, with an empty schema, and ``tool_choice: none`` keeps the model from using it.
    """
    names = {call.name: None for m in messages for call in m.tool_calls if call.kind == "function"}
    if not names:
        return {}
    schema = {"type": "object", "properties": {}}
    return {"tools": [{"name": n, "input_schema": schema} for n in names], "tool_choice": {"type": "none"}}


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Alternating messages: neighbours of one role are joined, empty ones left out."""
    out: list[dict[str, Any]] = []
    for message, ids in zip(messages, wire_ids(messages), strict=True):
        if message.role == "system":
            continue
        role, blocks = _blocks(message, ids)
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"].extend(blocks)
        else:
            out.append({"role": role, "content": blocks})
    return out


def _blocks(message: Message, ids: tuple[str, ...]) -> tuple[str, list[Block]]:
    if message.role == "tool":
        return "user", [_result(message, ids[0])]
    if message.role == "assistant":
        return "assistant", _assistant(message, ids)
    return "user", [{"type": "text", "text": message.text}] if message.text.strip() else []


def _result(message: Message, tool_use_id: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": message.text}
    if message.is_error:
        block["is_error"] = True
        block["content"] = message.text or "The call failed without a message."
    return block


def _assistant(message: Message, ids: tuple[str, ...]) -> list[Block]:
    calls = [_call(c, own) for c, own in zip(message.tool_calls, ids, strict=True) if c.kind == "function"]
    kept = (message.opaque or {}).get("anthropic")
    if kept:
        return _with_kept(message.text, calls, kept)
    text: list[Block] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return text + calls


def _with_kept(text: str, calls: list[Block], kept: list[Block]) -> list[Block]:
    """The reply's own blocks in their order, with the calls as they are now: ids may have been repaired,
    calls removed. A text that was changed since replaces all the text blocks."""
    same_text = "".join(b.get("text", "") for b in kept if b.get("type") == "text") == text
    out: list[Block] = []
    waiting = list(reversed(calls))
    placed = same_text
    for block in kept:
        kind = block.get("type")
        if kind == "tool_use":
            if waiting:
                out.append(waiting.pop())
        elif kind != "text":
            out.append(block)
        elif same_text:
            if block.get("text", "").strip():
                out.append(block)
        elif not placed:
            placed = True
            if text.strip():
                out.append({"type": "text", "text": text})
    if not placed and text.strip():
        out.append({"type": "text", "text": text})
    return out + waiting[::-1]


def _call(call: ToolCall, own_id: str) -> Block:
    return {"type": "tool_use", "id": own_id, "name": call.name, "input": _input(call.arguments)}


def _input(arguments: str) -> Any:
    """Arguments as the object the format requires; a text that is none travels inside one."""
    text = arguments.strip() or "{}"
    try:
        if text[0] == "{" and isinstance(decode(text), dict):
            return msgspec.Raw(text.encode())
    except (ValueError, UnicodeEncodeError):
        pass
    return {"invalid_arguments": arguments}
