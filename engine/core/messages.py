"""Contents of a conversation, in one neutral form that every wire format maps to.

Frozen records with a JSON form. The core refers to them by reference (a SHA-256 in the
content store) and never looks inside; clients turn them into a provider's wire format.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """One call a model asks for. ``arguments`` is the raw JSON text, exactly as the model sent it."""

    id: str
    name: str
    arguments: str = "{}"
    kind: Literal["function", "hosted"] = "function"


class Message(Struct, frozen=True, omit_defaults=True):
    """One message. A ``tool`` message answers ``tool_call_id``; ``is_error`` says the call failed.

    ``opaque`` keeps what a provider wants to see again unchanged (signatures, reasoning items).
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    opaque: dict[str, Any] | None = None


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """A tool as declared to the model. ``parameters`` is a JSON Schema of type ``object``."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


class Usage(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens one attempt has used.

    ``input`` is everything sent, ``cached`` and ``cache_write`` the parts of it read from and
    written to a cache; ``output`` is everything generated, ``reasoning`` the part of it not shown.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Request(Struct, frozen=True, omit_defaults=True):
    """One request to a model. ``tool_choice`` is a mode or the name of a tool that must be used.

    ``settings`` holds wire-level extras (``temperature``, ``stop`` …) merged into the request body.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    """``auto``, ``none``, ``required``, or a tool's name."""
    max_output: int | None = None
    stream: bool = False
    settings: dict[str, Any] = {}


Finish = Literal["stop", "tool_calls", "length", "content_filter", "pause"]


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a model answered. ``usage`` is ``None`` where the provider reported none."""

    message: Message
    finish: Finish = "stop"
    usage: Usage | None = None
    model: str = ""
    request_id: str = ""
