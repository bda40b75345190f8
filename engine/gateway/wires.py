"""What a gateway needs to know of a wire format: reading a transcript, changing a request, writing an answer.

``openai_wire`` and ``anthropic_wire`` implement it, each for one format; nothing else here knows their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from engine.clients.sse import Event
from engine.clients.wire import Assembler
from engine.core.decisions import Call
from engine.core.messages import Message, Reply, ToolCall

Json = dict[str, Any]


class Shown(Struct, frozen=True):
    """A result that a transcript shows; ``failed`` is ``None`` where the format does not say."""

    id: str
    text: str
    failed: bool | None = None


class Round(Struct, frozen=True):
    """A reply of which something was kept from the client, as the model has to see it again.

    ``ids`` are the calls that the client got. ``before`` are messages of whole rounds in the same response that it did
    not get, ``message`` is the reply, ``refused`` the calls cut from it, with what stands for their results.
    """

    ids: tuple[str, ...]
    before: tuple[Json, ...]
    message: Json
    refused: tuple[tuple[ToolCall, str], ...]


class Rewriter(Protocol):
    """One streamed answer, on its way through: what the client sees of it, and when.

    All methods return bytes for the client. One object for a response, whatever attempts and rounds it takes.
    """

    shown: bool
    """Has the client got a piece of an answer?"""

    def begin(self) -> None:
        """A stream of the upstream begins: a further attempt, or the call behind a round that was cut."""

    def take(self, event: Event) -> bytes:
        """What goes on at once; the rest is held."""
        ...

    def finish(self, reply: Reply, kept: Sequence[ToolCall], *, whole: bool) -> bytes:
        """The end of an answer of which the client gets these calls; ``whole``: all of them, as they came."""
        ...

    def close(self, text: str) -> bytes:
        """The end of an answer that is cut short; ``text`` says why."""
        ...

    def error(self, body: Json) -> bytes:
        """The end by an error."""
        ...


class Wire(Protocol):
    """One format."""

    name: str

    # Reading.

    def messages(self, body: Json) -> list[Json]:
        """The transcript. Raises ``ValueError`` in words for a body that has none."""
        ...

    def question(self, messages: Sequence[Json]) -> int:
        """How many messages stand before the answer to the last question: everything up to the last one of a user."""
        ...

    def neutral(self, message: Json) -> Message:
        """Role, text and calls of a message."""
        ...

    def results(self, messages: Iterable[Json]) -> list[Shown]: ...

    def offered(self, body: Json) -> dict[str, str]:
        """The functions declared to the model, each with its description and schema as text."""
        ...

    def largest_output(self, body: Json) -> int | None: ...

    def unfit(self, body: Json) -> str:
        """Why a request cannot be governed, in words; empty if it can."""
        ...

    def parse(self, body: Json) -> Reply:
        """A whole reply. Raises ``ModelError``."""
        ...

    def assembler(self) -> Assembler: ...

    # Writing.

    def ruled(self, body: Json, call: Call, model: str) -> Json:
        """The request as a decision wants it; ``model``: in place of its own, if given."""
        ...

    def restored(self, messages: list[Json], start: int, rounds: Mapping[str, Round]) -> list[Json]:
        """The transcript with everything put back that was cut behind ``start``; ``rounds`` by the ids of calls that
        the client got. The same list if there is nothing."""
        ...

    def round(self, message: Message, results: Sequence[tuple[ToolCall, str]]) -> list[Json]:
        """A reply and the results of all its calls."""
        ...

    def reply(self, message: Message) -> Json:
        """A model's reply as a message."""
        ...

    def cut(self, body: Json, calls: Sequence[ToolCall], kept: Sequence[ToolCall]) -> Json:
        """A whole reply of which only some of its calls of functions are ``kept``, under their ids here."""
        ...

    def answer(self, text: str, model: str) -> Json:
        """A whole reply that says just this."""
        ...

    def error(self, status: int, kind: str, message: str) -> Json:
        """An error's body; ``kind`` is the word for what has refused."""
        ...

    def rewriter(self, body: Json) -> Rewriter:
        """For the answer to this request."""
        ...

    def path(self, base: str) -> str:
        """Where requests go, below a base URL as the provider's own documentation writes it."""
        ...

    def key_header(self, key: str) -> tuple[str, str]: ...


def unoffered(names: Mapping[str, str], calls: Iterable[ToolCall]) -> frozenset[str]:
    """Ids of calls of functions that were not declared."""
    return frozenset(call.id for call in calls if call.kind == "function" and call.name not in names)
