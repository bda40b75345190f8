"""What a host reports to ``step``: one frozen record an event.

Every event carries ``at``, integer milliseconds on the run's own clock. An event says what it
is about (a call and its attempt, a tool call), so that a host which asks twice, crashes, or
retries by itself does no harm. Contents are named by reference (``ref``), never carried.
Source: section 2 of the semantics (``docs/semantics.md``).
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from engine.core.host import FULL
from engine.core.messages import Finish, Usage
from engine.core.state import ClientInfo, Pools, Refusal, Used


class Proposed(Struct, frozen=True, gc=False, omit_defaults=True):
    """One call a model proposes. ``id`` is unique within the run (the driver writes ``round.position``).

    ``args`` is the canonical key of the arguments (``engine.core.canonical.arguments_key``), empty if not JSON.
    ``problem`` says in words why arguments that do not parse or validate were not accepted. ``kind``: a tool of the
    host (``function``, ``external`` if the host's user executes it, ``agent`` if it is a delegation), the answer
    (``output``), what the provider has executed itself (``hosted``), or a change of agent (``handoff``).
    """

    id: str
    name: str
    args: str = ""
    kind: Literal["function", "output", "hosted", "external", "handoff", "agent"] = "function"
    registered: bool = True
    problem: str = ""


AWAITED = ("function", "external", "agent", "handoff")
"""Kinds of calls that take a result."""


class Event(Struct, frozen=True, gc=False, tag_field="event", omit_defaults=True):
    """Base of all events. ``at``: milliseconds; a smaller one than the last is read as the last."""

    at: int


class RunStarted(Event, frozen=True, tag="run_started"):
    """A run begins. ``thread_used`` is what the thread's earlier runs have used, ``refs`` the first messages.

    ``clients`` are those the host can route to by name. ``node`` is the node of a tree that runs, where that is not
    called like the run: it owns the limits that outlast one.
    """

    run: str
    thread: str | None = None
    parent: str | None = None
    fingerprint: str = ""
    profile: tuple[str, ...] = FULL
    thread_used: Used | None = None
    clients: tuple[ClientInfo, ...] = ()
    refs: tuple[str, ...] = ()
    node: str = ""


class CallRequested(Event, frozen=True, tag="call_requested"):
    """The host is about to call a model.

    ``client`` and ``model`` are what it would use; ``input_tokens`` its estimate of the request's size, if it
    has one; ``max_output`` the largest output it would ask for; ``answered`` the tool calls it closed by itself.
    ``ref`` names messages added since the last call that are no model's reply and no tool's result.
    """

    call: str
    client: str = ""
    model: str = ""
    input_tokens: int | None = None
    max_output: int | None = None
    answered: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()


class Resolved(Event, frozen=True, tag="resolved"):
    """The host's function that a ``Resolve`` asked for has answered; ``ref`` names its text."""

    name: str
    status: Literal["ok", "empty", "failed", "timed_out"] = "ok"
    ref: str = ""
    step: str = ""
    """The step that a consultant chose, by its verb."""


class ModelReplied(Event, frozen=True, tag="model_replied"):
    """An attempt succeeded. ``text``: is there visible text? ``estimated``: the usage is the host's own guess."""

    call: str
    attempt: int = 1
    finish: Finish = "stop"
    text: bool = False
    calls: tuple[Proposed, ...] = ()
    usage: Usage | None = None
    estimated: bool = False
    ref: str = ""


class ModelFailed(Event, frozen=True, tag="model_failed"):
    """An attempt failed, for one of ``vocabulary.REASONS``. ``partial``: was text held back, or shown, before?"""

    call: str
    attempt: int = 1
    reason: str = "unknown"
    retry_after: int | None = None
    jitter: int = 0
    partial: Literal["none", "held", "delivered"] = "none"
    usage: Usage | None = None
    estimated: bool = False
    ref: str = ""


class RetryDue(Event, frozen=True, tag="retry_due"):
    """The wait before a further attempt of ``call`` is over."""

    call: str


class ToolRequested(Event, frozen=True, tag="tool_requested"):
    """Sent just before a tool starts. The last three fields serve hosts that show no whole rounds."""

    id: str
    name: str = ""
    args: str = ""
    registered: bool = True


class ToolEnded(Event, frozen=True, tag="tool_ended"):
    """One execution has ended. ``result`` keys its result; ``ends``: it ends the run; ``jitter`` 0..999.

    ``deferred``: the tool has taken the call but not done it yet; its result comes later, by a further ``ToolEnded``
    with attempt 0 or that of the start. So does the result of an external call, which has no attempt (0 or 1).
    """

    id: str
    attempt: int = 1
    status: Literal["ok", "failed", "timed_out", "cancelled", "denied", "deferred", "unknown"] = "ok"
    result: str = ""
    usage: Usage | None = None
    ends: Literal["", "answer", "stop"] = ""
    ref: str = ""
    jitter: int = 0


class ApprovalGiven(Event, frozen=True, tag="approval_given"):
    """A person has answered about a tool call, or the time to do so is over, or nobody is there to ask.

    ``args`` is the key of edited arguments, ``ref`` names the content that holds them. ``answered`` is when the person
    answered (ms), where the run takes it up only later; 0: at ``at``.
    """

    id: str
    answer: Literal["granted", "refused", "expired", "nobody"] = "granted"
    args: str | None = None
    ref: str = ""
    answered: int = 0


class ExtensionAnswered(Event, frozen=True, tag="extension_answered"):
    """A person has answered whether a limit may grow, or the time to do so is over, or nobody is there to ask.

    ``id`` is the limit's (``tokens``, ``tool_calls per run``…); ``amount`` how much more is granted, in the limit's
    unit: 0 grants what was asked for, and more than that is cut to it. ``answered`` as for ``ApprovalGiven``.
    """

    id: str
    answer: Literal["granted", "refused", "expired", "nobody"] = "granted"
    amount: int = 0
    answered: int = 0


class UsageReported(Event, frozen=True, tag="usage_reported"):
    """Cumulative usage of an attempt that is still going on. Steers nothing in its own run."""

    call: str
    attempt: int
    usage: Usage


class PoolsSeen(Event, frozen=True, tag="pools_seen"):
    """What the ledger of a tree shows this run, just before an event that may admit something, its start included."""

    pools: Pools


class SpawnRequested(Event, frozen=True, tag="spawn_requested"):
    """The run wants a child of this agent; ``id`` is the tool call that asks for it, if one does.

    ``refused``: the ledger does not allow it. ``queued``: it does, but every slot is taken.
    """

    child: str
    agent: str
    id: str = ""
    refused: Refusal | None = None
    queued: bool = False


class WakeRequested(Event, frozen=True, tag="wake_requested"):
    """The run wants a child that has run before to run again; the rest as for ``SpawnRequested``."""

    child: str
    agent: str
    refused: Refusal | None = None
    queued: bool = False


class ChildEnded(Event, frozen=True, tag="child_ended"):
    """A run of a child has ended, as its outcome's ``status`` says; ``ref`` names its text."""

    child: str
    status: str
    used: Used = Used()
    ref: str = ""


class Tick(Event, frozen=True, tag="tick"):
    """Time has passed, nothing else."""


class Cancelled(Event, frozen=True, tag="cancelled"):
    """Somebody wants the run to end."""

    cause: str = "user"


AnyEvent = (
    RunStarted
    | CallRequested
    | Resolved
    | ModelReplied
    | ModelFailed
    | RetryDue
    | ToolRequested
    | ToolEnded
    | ApprovalGiven
    | ExtensionAnswered
    | UsageReported
    | PoolsSeen
    | SpawnRequested
    | WakeRequested
    | ChildEnded
    | Tick
    | Cancelled
)

_decoder = msgspec.json.Decoder(AnyEvent)
_encoder = msgspec.json.Encoder(order="sorted")


def encode_event(event: AnyEvent) -> bytes:
    """Canonical JSON of an event."""
    return _encoder.encode(event)


def decode_event(data: bytes | str) -> AnyEvent:
    """The event of ``encode_event``'s JSON. Raises ``msgspec.ValidationError`` for anything else."""
    event: AnyEvent = _decoder.decode(data)
    return event
