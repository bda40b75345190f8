"""The Chat Completions wire format: OpenAI's own API and every server that is compatible with it.

Only the format: HTTP, keys and failures are in ``http_client``.
"""

from __future__ import annotations

from typing import Any, ClassVar

from engine.clients.base import ModelError
from engine.clients.http_client import HttpClient
from engine.clients.ids import wire_ids
from engine.clients.openai_reply import StreamAssembler, parse_reply
from engine.core.messages import Message, Reply, Request, ToolSpec


class OpenAIChat(HttpClient):
    """A model behind ``POST {base_url}/chat/completions``."""

    wire: str = "openai_chat"
    default_base_url: ClassVar[str] = "https://api.openai.com/v1"
    default_key_env: ClassVar[str] = "OPENAI_API_KEY"
    default_output: ClassVar[int] = 16_384
    path: ClassVar[str] = "/chat/completions"
    request_id_header: ClassVar[str] = "x-request-id"
    reserved_settings: ClassVar[frozenset[str]] = frozenset(
        ["model", "messages", "tools", "tool_choice", "functions", "function_call", "stream", "stream_options", "n"]
    )

    def key_header(self, key: str) -> tuple[str, str]:
        return "authorization", f"Bearer {key}"

    def body(self, request: Request) -> dict[str, Any]:
        ids = wire_ids(request.messages)
        messages = [_message(m, own) for m, own in zip(request.messages, ids, strict=True)]
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        choice = _tool_choice(request)
        if choice is not None:
            body["tool_choice"] = choice
        most = request.max_output or self.max_output
        if most is not None:
            body[self._max_output_field()] = most
        if request.stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def parse(self, body: dict[str, Any], request_id: str) -> Reply:
        return parse_reply(body, request_id, self.bounds.tool_calls)

    def assembler(self) -> StreamAssembler:
        return StreamAssembler(self.bounds.tool_calls)

    def _max_output_field(self) -> str:
        # OpenAI refuses the old name for its reasoning models; many compatible servers know no other.
        host = self.base_url.host
        new = host == "api.openai.com" or host.endswith(".openai.azure.com")
        return "max_completion_tokens" if new else "max_tokens"


def _message(message: Message, ids: tuple[str, ...]) -> dict[str, Any]:
    if message.role == "tool":
        # The format has no flag for a failed call; the text must say it, so it may not be empty.
        text = message.text or ("The call failed without a message." if message.is_error else "")
        return {"role": "tool", "tool_call_id": ids[0], "content": text}
    if message.role != "assistant":
        return {"role": message.role, "content": message.text}
    kept = (message.opaque or {}).get("openai_chat") or {}
    out: dict[str, Any] = {"role": "assistant", "content": message.text}
    calls = []
    extras = kept.get("calls", {})
    for position, (call, own) in enumerate(zip(message.tool_calls, ids, strict=True)):
        if call.kind == "function":
            function = {"name": call.name, "arguments": call.arguments or "{}"}
            calls.append({"id": own, "type": "function", "function": function} | extras.get(str(position), {}))
    if calls:
        out["tool_calls"] = calls
        out["content"] = message.text or None
    out |= kept.get("message", {})
    return out


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _tool_choice(request: Request) -> Any:
    choice = request.tool_choice
    if choice == "auto":
        return None
    if not request.tools:
        if choice == "none":
            return None
        raise ModelError("host", f"the request forces a tool (`{choice}`) but declares none")
    if choice in ("none", "required"):
        return choice
    if all(tool.name != choice for tool in request.tools):
        raise ModelError("host", f"the request forces the tool `{choice}`, which it does not declare")
    return {"type": "function", "function": {"name": choice}}
