"""The contents of a run: messages by the hash of their canonical JSON, encoded once, kept while the run goes on."""

from __future__ import annotations

import msgspec
from msgspec import structs

from engine.core.messages import Message
from engine.run.results import clean
from engine.store.protocol import Contents as Store

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Message).decode


class Contents:
    """Messages on top of a store of bytes."""

    __slots__ = ("_known", "_store")

    def __init__(self, store: Store) -> None:
        self._known: dict[str, Message] = {}
        self._store = store

    def put(self, content: Message) -> str:
        """Store a message; its reference."""
        message = content
        try:
            data = _encode(message)
        except UnicodeEncodeError:
            message = _encodable(message)
            data = _encode(message)
        ref = self._store.put(data)
        self._known[ref] = message
        return ref

    def get(self, ref: str) -> Message:
        """The message of a reference. Raises ``JournalError`` for an unknown one."""
        message = self._known.get(ref)
        if message is None:
            message = self._known[ref] = _decode(self._store.get(ref))
        return message


def _encodable(message: Message) -> Message:
    """A message without lone surrogates: JSON may spell them, UTF-8 cannot."""
    calls = tuple(
        structs.replace(c, id=clean(c.id), name=clean(c.name), arguments=clean(c.arguments)) for c in message.tool_calls
    )
    return structs.replace(message, text=clean(message.text), tool_calls=calls)
