"""The plain data that crosses a durable engine: what a run is begun with, what an effect came to, what people send.

All of it is JSON with sorted keys. Nothing here knows an engine, or how anything is carried out.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from engine.core.decisions import Note
from engine.core.events import AnyEvent
from engine.core.pooling import Node
from engine.core.state import State, Used
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.decoding import decoder
from engine.run.effects import Position, RunSpec
from engine.run.records import HostRecord
from engine.run.result import ChildRun, OpenRequest, RunResult

Trail = tuple[tuple[str, str, str], ...]
"""Run, event and decision, both as JSON, of each step."""


class Order(Struct, frozen=True, omit_defaults=True):
    """A run as it is handed to an engine: all that it needs, so that any worker can take it up.

    ``contents`` are its messages by reference, as canonical JSON. ``state`` and ``position`` are there where it goes on
    in a fresh execution; ``held`` are signals that came meanwhile. ``trail``: every event with its decision is kept and
    given back with the end, for those who want to compare runs.

    ``agent`` leads from the top of a tree to a run below another, names with ``/`` between them. ``path`` is the run's
    node in the ledger and those above, nearest first, as they were at its spawn. ``withdrawn`` says why it is to end
    before it has begun; ``children`` are the runs below that ended in an earlier execution.
    """

    spec: RunSpec
    host: HostRecord
    contents: dict[str, str]
    semantics: int = SEMANTICS_VERSION
    agent: str = ""
    state: State | None = None
    position: Position | None = None
    held: tuple[Signal, ...] = ()
    notes: tuple[Note, ...] = ()
    trail: Trail | None = None
    path: tuple[Node, ...] = ()
    withdrawn: str = ""
    children: tuple[ChildRun, ...] = ()


class Ended(Struct, frozen=True, omit_defaults=True, tag="ended"):
    """The end of an effect, as an engine journals it.

    ``contents`` are those that ``event`` names, by reference; ``digest`` is that of the decision the effect came from.
    """

    event: AnyEvent
    contents: dict[str, str] = {}
    notes: tuple[Note, ...] = ()
    digest: str = ""


class Cancel(Struct, frozen=True, tag="cancel"):
    """Somebody wants the run to end. ``at`` in ms since 1970."""

    at: int
    cause: str = "user"


class Answered(Struct, frozen=True, omit_defaults=True, tag="answer"):
    """A person's answer to a ``request`` (``RUN:CALL``), given ``at`` (ms since 1970) ``by`` somebody.

    ``amount`` is how much more a limit gets (0: what was asked for), ``value`` the JSON of edited arguments or the text
    of an external result.
    """

    request: str
    at: int
    verdict: Literal["granted", "refused"] = "granted"
    amount: int = 0
    value: str | None = None
    by: str = ""


class ChildOver(Struct, frozen=True, tag="child"):
    """The run of an agent below this one has ended, ``at`` (ms since 1970)."""

    at: int
    end: End


class Timer(Struct, frozen=True, tag="timer"):
    """Nothing has happened until the time the loop gave."""

    at: int


Signal = Cancel | Answered | ChildOver
"""What reaches a run from outside."""

Happening = Ended | Cancel | Answered | ChildOver | Timer


class Report(Struct, frozen=True, omit_defaults=True):
    """Where a run stands, for whoever looks at it while it goes on. ``status`` is ``running`` or ``suspended``."""

    run: str
    status: str
    at: int
    used: Used
    requests: tuple[OpenRequest, ...] = ()


class End(Struct, frozen=True, omit_defaults=True):
    """How a run has ended. ``trail`` is its own and, behind it, that of each run below, where that was asked for.

    ``at`` is when its last event was (ms since 1970): the same whenever the run's record is gone through.
    """

    result: RunResult
    trail: Trail | None = None
    at: int = 0


class Refused(Struct, frozen=True):
    """A worker does not take this run: it would not mean what was asked for. ``why`` in words."""

    why: str


T = TypeVar("T")

_encoder = msgspec.json.Encoder(order="sorted")


def encode(value: Any) -> str:
    """Canonical JSON."""
    return _encoder.encode(value).decode()


def decode(text: str | bytes, type: type[T]) -> T:
    """The value of such JSON. Raises ``msgspec.ValidationError`` for anything else."""
    return decoder(type).decode(text)
