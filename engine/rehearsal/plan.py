"""A scripted reply made ready for one request: placeholders filled, calls counted out, tokens computed.

What the ``render`` modules turn into bytes; knows no wire format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from engine.core.messages import Usage
from engine.rehearsal.script import ScriptedReply, ScriptedUsage
from engine.rehearsal.seen import Seen, characters, estimate


class PlannedCall(NamedTuple):
    """One tool call to send: its id (``None`` to leave out), name, and arguments as text and as a value."""

    id: str | None
    name: str
    arguments: str
    value: Any
    hosted: bool


class Plan(Struct, frozen=True):
    """What one request is answered with, down to the size of the pieces (characters) that it is streamed in."""

    """What one request is answered with, down to the size of the pieces (characters) that it is streamed in."""

    number: int
    """Of the request, from 1. Makes ids that are the same in every rehearsal."""
    model: str
    text: str
    refusal: str
    finish: str
    usage: Usage | None
    cumulative: bool
    piece: int
    reply: ScriptedReply

    def calls(self) -> Iterator[PlannedCall]:
        """One by one, since a script may ask for a million."""
        position = 0
        for call in self.reply.all_calls:
            value = _filled(call.args, self.number)
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            for _ in range(call.count):
                position += 1
                own = f"call_{self.number}_{position}" if call.id is None else _filled(call.id, self.number)
                yield PlannedCall(own or None, call.tool, text, value, call.hosted)

    @property
    def number_of_calls(self) -> int:
        return sum(call.count for call in self.reply.all_calls)

    def pieces(self) -> Iterator[str]:
        for start in range(0, len(self.text), self.piece):
            yield self.text[start : start + self.piece]


def make_plan(number: int, reply: ScriptedReply, seen: Seen) -> Plan:
    """What request ``number`` (from 1) is answered with: the reply of the script, and all that it leaves open."""
    said = _filled(reply.text or "", number)
    asks = any(not call.hosted for call in reply.all_calls)
    finish = reply.finish or ("length" if reply.fail == "truncated" else "tool_calls" if asks else "stop")
    refused = finish == "refusal"
    return Plan(
        number=number,
        model=seen.model,
        text="" if refused or reply.fail == "truncated" else said,
        refusal=said if refused else "",
        finish=finish,
        usage=_usage(reply, said, seen),
        cumulative=isinstance(reply.usage, ScriptedUsage) and reply.usage.cumulative,
        piece=reply.piece,
        reply=reply,
    )


def _usage(reply: ScriptedReply, said: str, seen: Seen) -> Usage | None:
    if not isinstance(reply.usage, ScriptedUsage):
        return None
    given = reply.usage
    sent = seen.size if given.input is None else given.input
    calls = sum(c.count * (len(c.tool) + characters([c.args])) for c in reply.all_calls)
    made = estimate(len(said) + calls) + given.reasoning if given.output is None else given.output
    cached = min(given.cached, sent)
    written = min(given.cache_write, sent - cached)
    return Usage(sent, made, cached, written, min(given.reasoning, made))


def _filled(value: Any, number: int) -> Any:
    """``{n}`` in any text becomes the number of the request, so that repeated calls can differ."""
    if isinstance(value, str):
        return value.replace("{n}", str(number))
    if isinstance(value, list):
        return [_filled(item, number) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, number) for key, item in value.items()}
    return value
