"""How a loop writes tool calls, results and declarations down in OpenAI's format. Needs no SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.clients.wire import dict_of, text_of
from engine.core.messages import ToolCall, ToolSpec

Json = dict[str, Any]


def read(call: Any) -> ToolCall:
    """A call as an SDK gives it, or as a plain dictionary."""
    if isinstance(call, Mapping):
        function = dict_of(call.get("function"))
        return ToolCall(text_of(call.get("id")), text_of(function.get("name")), text_of(function.get("arguments")))
    return ToolCall(call.id, call.function.name, call.function.arguments)


def result(id: str, text: str, failed: bool) -> Json:
    """The message that answers a call."""
    # The format has no flag for a failed call; its text must say it, so it may not be empty.
    return {"role": "tool", "tool_call_id": id, "content": text or ("The call failed." if failed else "")}


def declared(spec: ToolSpec) -> Json:
    """A tool as a request declares it."""
    function = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return {"type": "function", "function": function}
