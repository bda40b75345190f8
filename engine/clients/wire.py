"""Small readers for decoded JSON of unknown quality: the right type, or nothing.

A provider's reply is input like any other; every field may be missing or of a wrong type.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from engine.clients.base import ModelError
from engine.clients.sse import Event
from engine.core.messages import Reply, ToolCall, Usage

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_MOST_TOKENS = 10**12


def decode(data: bytes | str) -> Any:
    """JSON to Python. Raises ``ValueError`` with one line on anything that is no JSON."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ValueError(str(exc) or "nested too deeply") from None


def text_of(value: Any) -> str:
    """The value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def dict_of(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A number of tokens; 0 for whatever is none."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return min(value, _MOST_TOKENS)
    return 0


def is_count(value: Any) -> bool:
    """Is it a whole number that is not negative?"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def largest(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """The larger of two cumulative reports, field by field: a stream repeats what it has reported."""
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in a.keys() | b.keys()}


def check_number_of_calls(number: int, most: int) -> None:
    """Raises ``ModelError`` (``provider``) for a reply with more tool calls than we take."""
    if number > most:
        raise ModelError("provider", f"the reply asks for more than {most:,} tool calls")


def has_function_call(calls: tuple[ToolCall, ...]) -> bool:
    """Is there a call that we are to execute? Others the provider has executed itself."""
    return any(call.kind == "function" for call in calls)


class Assembler(Protocol):
    """Puts one streamed reply together. One for each attempt."""

    complete: bool
    """The finish has been seen: what arrived is a whole answer, even if the stream breaks now."""
    ended: bool
    """The last event has been seen: nothing more will be read."""

    def feed(self, event: Event) -> str:
        """Take one event; return the text it adds.

        Raises:
            ModelError: the event is an error, or makes no sense.
        """
        ...

    @property
    def started(self) -> bool:
        """Has anything of an answer arrived, shown or not?"""
        ...

    @property
    def text(self) -> str:
        """The visible text that has arrived."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The tokens reported so far; ``None`` if nothing was reported."""
        ...

    def reply(self, request_id: str) -> Reply:
        """The whole reply, once ``complete``. Raises ``ModelError`` if it makes no sense."""
        ...
