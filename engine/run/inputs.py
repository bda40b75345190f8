"""What a caller hands over, checked: the question or messages of a run, and the clients of a driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.clients.base import Client
from engine.core.messages import Message
from engine.core.transcript import problems

Input = str | Sequence[Message | Mapping[str, Any]]
"""A question, or a conversation: ``Message`` records, or mappings with ``role`` and ``text`` (or ``content``)."""


def opening(input: Input, system: str | None) -> list[Message]:
    """The first messages of a run. Raises ``ValueError`` for a conversation no provider would accept."""
    if isinstance(input, str):
        if not input.strip():
            raise ValueError("the question is empty")
        messages = [Message("user", input)]
    elif isinstance(input, Sequence):
        messages = [_message(i, item) for i, item in enumerate(input, 1)]
    else:
        raise ValueError(f"a run begins with a question or a list of messages, not with a `{type(input).__name__}`")
    if found := problems(messages):
        raise ValueError(f"these messages cannot be sent: {'; '.join(found[:3])}")
    if system and not any(m.role == "system" for m in messages):
        messages.insert(0, Message("system", system))
    return messages


def _message(number: int, item: Any) -> Message:
    if isinstance(item, Message):
        return item
    if not isinstance(item, Mapping):
        raise ValueError(f"message {number} is a value of type `{type(item).__name__}`, not a message")
    fields = dict(item)
    if isinstance(fields.get("content"), str):
        fields["text"] = fields.pop("content")
    if unknown := sorted(fields.keys() - set(Message.__struct_fields__)):
        raise ValueError(f"message {number} has an unknown field `{unknown[0]}`: use role and text")
    try:
        return msgspec.convert(fields, Message)
    except msgspec.ValidationError as exc:
        raise ValueError(f"message {number} is not a message: {exc}") from None


def by_name(clients: Client | Sequence[Client] | Mapping[str, Client]) -> dict[str, Client]:
    """Clients by name, the primary first. Raises ``ValueError`` for none, a bad name, or what is no client."""
    if isinstance(clients, Mapping):
        named = dict(clients)
    else:
        each = list(clients) if isinstance(clients, Sequence) else [clients]
        named = {client.name: client for client in each}
        if len(named) < len(each):
            raise ValueError("two clients have the same name: pass a mapping with names of your own")
    if not named:
        raise ValueError("a driver needs a client")
    for name, client in named.items():
        if not callable(getattr(client, "complete", None)):
            raise ValueError(f"`{name}` is a value of type `{type(client).__name__}`, not a client")
        if not name:
            raise ValueError("a client has an empty name: give it the one the policy uses")
    return named
