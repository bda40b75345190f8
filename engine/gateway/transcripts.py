"""What a request's transcript says of its run: which place it has, what was asked for in it, how large it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from engine.adapters.acts import Wanted
from engine.clients.wire import encode
from engine.core.messages import Message
from engine.gateway.settings import MAIN
from engine.gateway.wires import Json, Shown, Wire
from engine.run import sizes

RUN_HEADER: Final = "x-policy-run"
THREAD_HEADER: Final = "x-policy-thread"
OWN_HEADERS: Final = (RUN_HEADER, THREAD_HEADER)
_DISTINCT: Final = 32
"""So long a text of a model is taken for one that no other conversation has."""


class Asked:
    """One request: its body, whose it is, and where in a conversation it stands.

    Raises:
        ValueError: the body has no transcript, or cannot be governed; in words.
    """

    def __init__(self, wire: Wire, body: Json, key: str, headers: Mapping[str, str]) -> None:
        self.wire, self.body, self.key = wire, body, key
        self.messages = wire.messages(body)
        if problem := wire.unfit(body):
            raise ValueError(problem)
        self.start = wire.question(self.messages)
        self.run = _name(headers, RUN_HEADER)
        self.thread = _name(headers, THREAD_HEADER)

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""

    @property
    def behind(self) -> list[Json]:
        """What follows the last question."""
        return self.messages[self.start :]

    @cached_property
    def replies(self) -> list[Message]:
        """What models have said since the last question."""
        return [m for m in map(self.wire.neutral, self.behind) if m.role == "assistant"]

    @cached_property
    def results(self) -> list[Shown]:
        return self.wire.results(self.behind)

    @cached_property
    def place(self) -> str:
        """Names the conversation up to the last question, whatever has been changed in it that no model reads so."""
        return self._named(self.messages[: self.start])

    @cached_property
    def before(self) -> str:
        """Names the conversation before the last question; empty where there was none."""
        earlier = self.messages[: max(0, self.start - 1)]
        return self._named(earlier) if any(m.get("role") == "assistant" for m in earlier) else ""

    def after(self, said: Message) -> str:
        """Names the conversation with this answer at its end."""
        return self._named([*self.messages, self.wire.reply(said)])

    def _named(self, messages: Iterable[Json]) -> str:
        said = (self.wire.neutral(message) for message in messages)
        return self._hash(plain(m) for m in said if m.role != "system")

    def _hash(self, parts: Iterable[Any]) -> str:
        return sha256(encode([self.key, self.wire.name, *parts])).hexdigest()[:32]

    def distinct(self, message: Message) -> str:
        """Names a reply that hardly another conversation of this key has; empty for what many may have."""
        if message.role != "assistant" or not (message.tool_calls or len(message.text) >= _DISTINCT):
            return ""
        return self._hash([plain(message)])

    @property
    def known_replies(self) -> list[str]:
        """Names of the distinct replies of the whole transcript, the last first."""
        said = (self.wire.neutral(message) for message in reversed(self.messages))
        return [name for name in map(self.distinct, said) if name]

    def wanted(self, *, size: bool) -> Wanted:
        """The call that is asked for; with its estimated ``size``, where something depends on that."""
        return Wanted(MAIN, self.model, self._size() if size else None, self.wire.largest_output(self.body))

    def _size(self) -> int:
        said = sum(sizes.characters(self.wire.neutral(message)) for message in self.messages)
        if self.wire.name == "anthropic":  # there results and system texts stand elsewhere
            said += sum(len(shown.text) for shown in self.wire.results(self.messages))
            said += len(encode(self.body.get("system") or ""))
        return sizes.tokens(said + sum(map(len, self.wire.offered(self.body).values())))


def plain(message: Message) -> list[Any]:
    """A message as it stays, whatever a client adds to it or leaves out."""
    return [message.role, message.text, [[call.id, call.name] for call in message.tool_calls]]


def _name(headers: Mapping[str, str], header: str) -> str:
    name = headers.get(header, "").strip()
    if len(name) > 200 or not name.isprintable():
        raise ValueError(f"`{header}` must be a name of up to 200 characters")
    return name
