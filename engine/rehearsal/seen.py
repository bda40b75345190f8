"""What a scripted model sees of a request, the same for both wire formats.

Reads bodies that the check modules have found valid; a body that is not gives an empty view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

Wire = Literal["openai", "anthropic"]


class Seen(Struct, frozen=True):
    """A request in neutral words. ``size`` is its input tokens by our own fixed estimate."""

    wire: Wire
    model: str
    stream: bool
    offered: tuple[str, ...]
    """Names of the tools that may be called: declared, and not forbidden by the tool choice."""
    forced: str | None
    last: str
    last_text: str
    results: int
    messages: int
    size: int
    report_usage: bool
    """Does the client want usage in a stream?"""


def see(wire: Wire, body: dict[str, Any]) -> Seen:
    """What can be told of a request's body in this wire format. A body that makes no sense has empty fields."""
    parts = list(_openai_parts(body) if wire == "openai" else _anthropic_parts(body))
    last, text = parts[-1] if parts else ("", "")
    offered, forced = _openai_tools(body) if wire == "openai" else _anthropic_tools(body)
    options = body.get("stream_options")
    return Seen(
        wire=wire,
        model=str(body.get("model") or ""),
        stream=body.get("stream") is True,
        offered=offered,
        forced=forced,
        last=last,
        last_text=text,
        results=sum(role == "tool" for role, _ in parts),
        messages=len(_list(body.get("messages"))),
        size=estimate(characters([body.get("messages"), body.get("system"), body.get("tools")]), len(parts)),
        report_usage=wire == "anthropic" or (isinstance(options, dict) and options.get("include_usage") is True),
    )


def estimate(chars: int, parts: int = 0) -> int:
    """Tokens for a number of characters: one for four, and three for each message."""
    return -(-chars // 4) + 3 * parts


def characters(value: Any) -> int:
    """Characters in all the strings of a JSON value, keys left out."""
    total, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
    return total


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in _dicts(content))


def _openai_parts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for message in _dicts(body.get("messages")):
        role = str(message.get("role"))
        yield "system" if role == "developer" else role, _text(message.get("content"))


def _anthropic_parts(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each tool result counts as a message of its own, as in the other format."""
    if body.get("system"):
        yield "system", _text(body["system"])
    for message in _dicts(body.get("messages")):
        role, content = str(message.get("role")), message.get("content")
        results = [block for block in _dicts(content) if block.get("type") == "tool_result"]
        for block in results:
            yield "tool", _text(block.get("content"))
        if not results or len(results) < len(_list(content)):
            yield role, _text([b for b in _dicts(content) if b.get("type") == "text"]) or _text(content)


def _openai_tools(body: dict[str, Any]) -> tuple[tuple[str, ...], str | None]:
    tools = [tool.get("function") for tool in _dicts(body.get("tools"))]
    names = tuple(str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool)
    choice = body.get("tool_choice")
    if choice == "none":
        return (), None
    if isinstance(choice, dict):
        function = choice.get("function")
        return names, str(function.get("name")) if isinstance(function, dict) else None
    return names, "*" if choice == "required" else None


def _anthropic_tools(body: dict[str, Any]) -> tuple[tuple[str, ...], str | None]:
    names = tuple(str(tool["name"]) for tool in _dicts(body.get("tools")) if "name" in tool)
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == "none":
        return (), None
    if kind == "tool" and isinstance(choice, dict):
        return names, str(choice.get("name"))
    return names, "*" if kind == "any" else None
