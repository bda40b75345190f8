"""What an environment offers to the loop: the ``Effects`` protocol, and the records that name an effect.

An effect is something the world does for a run: one attempt at a model, one tool execution, one
question to a host's function or to a person. The loop starts effects and learns of their ends as events; where and
how they are carried out (tasks of this process, a durable engine) it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from engine.core.decisions import AnyDecision, Call, Execute, Request, Resolve
from engine.core.events import (
    AnyEvent,
    ApprovalGiven,
    ExtensionAnswered,
    ModelFailed,
    ModelReplied,
    PoolsSeen,
    Resolved,
    ToolEnded,
)
from engine.core.messages import Message, ToolCall
from engine.core.state import ClientInfo, Outcome, State, Used
from engine.core.transcript import Transcript


class ProtocolError(RuntimeError):
    """The host and the core disagree about the run. A fault of the host, never of a policy or a model."""


class RunSpec(Struct, frozen=True):
    """Everything a run needs to be driven from its first event to its last: plain data, to travel as JSON.

    ``policy`` is the JSON of the policy that it is bound to, so that it ends under the one it began with wherever it is
    taken up. ``messages`` names the opening messages in the content store. ``overhead`` is how many characters every
    request carries besides its messages (the tools' declarations); ``None``: no limit wants a request's size.
    ``clients`` are those the policy may switch to, and the host's own. ``node`` is the run's place in a tree, empty for
    a run that is none of one.
    """

    run: str
    policy: str
    started: int
    messages: tuple[str, ...]
    client: str
    model: str = ""
    models: tuple[tuple[int, str], ...] = ()
    """From which call on, by its number, the client has had another model."""
    thread: str | None = None
    parent: str | None = None
    fingerprint: str = ""
    thread_used: Used | None = None
    max_output: int | None = None
    overhead: int | None = None
    clients: tuple[ClientInfo, ...] = ()
    node: str = ""


class ModelCall(Struct, frozen=True, gc=False):
    """One attempt at a model, with the conversation so far. ``round`` is the number its tool calls would have.

    ``idempotency`` is the same whenever this very attempt is started again after a crash.
    """

    key: str
    decision: Call
    transcript: Transcript
    round: int
    idempotency: str


class ToolRun(Struct, frozen=True, gc=False):
    """One execution of a tool. It starts at the decision's ``not_before`` (ms), if that is still to come."""

    key: str
    decision: Execute
    call: ToolCall
    idempotency: str


class ResolverRun(Struct, frozen=True, gc=False):
    """One question to a host's function. ``failure`` is the failed attempt it is consulted about, if it is."""

    key: str
    decision: Resolve
    transcript: Transcript
    failure: ModelFailed | None = None


class Approval(Struct, frozen=True, gc=False):
    """Something that a person is asked, or is to bring: ``request``.

    ``call`` is the tool call it is about, if it is about one, ``because`` the rule of the policy that asks.
    """

    key: str
    request: Request
    because: str = ""
    call: ToolCall | None = None


Effect = ModelCall | ToolRun | ResolverRun | Approval


def model_key(call: str, attempt: int) -> str:
    """Key of an attempt at a model, unique in the run."""
    return f"call:{call}.{attempt}"


def tool_key(id: str) -> str:
    """Key of a tool execution, unique in the run while it is open."""
    return f"tool:{id}"


def resolver_key(name: str) -> str:
    """Key of a question to the host's function ``name``; there is one at a time."""
    return f"resolver:{name}"


def approval_key(id: str) -> str:
    """Key of the question whether a tool call may run."""
    return f"ask:{id}"


def extension_key(id: str) -> str:
    """Key of the question whether the limit ``id`` may grow; there is one at a time."""
    return f"more:{id}"


def settles(event: AnyEvent) -> str:
    """The key of the effect whose end this event reports; empty for any other event."""
    if isinstance(event, ModelReplied | ModelFailed):
        return model_key(event.call, event.attempt)
    if isinstance(event, ToolEnded):
        return tool_key(event.id)
    if isinstance(event, Resolved):
        return resolver_key(event.name)
    if isinstance(event, ApprovalGiven):
        return approval_key(event.id)
    if isinstance(event, ExtensionAnswered):
        return extension_key(event.id)
    return ""


class Position(Struct, frozen=True):
    """Where the loop stands when nothing is in flight: enough to go on in another process or execution.

    ``messages`` names the whole conversation so far in the content store.
    """

    at: int
    calls: int
    rounds: int
    messages: tuple[str, ...]


class Finished(Struct, frozen=True):
    """The run has ended; its transcript is one a provider accepts again."""

    outcome: Outcome
    state: State
    transcript: Transcript


class Suspended(Struct, frozen=True):
    """Only people can go on with the run, and it does not wait for them here: the environment can take it up again."""

    state: State
    transcript: Transcript


class Moved(Struct, frozen=True):
    """The environment asked to go on in a fresh execution, from here."""

    state: State
    position: Position


class Effects(Protocol):
    """What an environment offers. ``next`` is the only place where the loop waits, and the only source of order.

    Nothing else waits, so that a turn is one act. An environment that can only store asynchronously keeps what is
    ``put`` and ``publish``ed, and what is to ``start``, until ``next``: there it stores the former, then begins the
    latter. What an event names it fetches in ``next``, before it gives the event out, and keeps.
    """

    def start(self, effect: Effect) -> None:
        """Begin an effect, do not wait for it. Its end comes out of ``next``, exactly once."""
        ...

    async def next(self, until: int) -> AnyEvent | None:
        """The next thing that happens; ``Tick`` if nothing does before ``until`` (ms).

        ``None`` from an environment that does not wait for people: nothing else is awaited, the run is left as it is.
        """
        ...

    def cancel(self, keys: Iterable[str]) -> None:
        """Ask these effects to end. Their ends are reported as usual."""
        ...

    def forget(self, key: str) -> None:
        """End this effect, if it is going on. Its end does not come out of ``next``."""
        ...

    def put(self, content: Message) -> str:
        """Store a content, before any event names it; its reference."""
        ...

    def get(self, ref: str) -> Message:
        """The content of a reference: ``put`` here, or named by the spec, the position or what ``next`` has given."""
        ...

    def publish(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        """An event has been decided. Called before any effect of the decision is started: journal it, tell listeners.

        None of these effects may begin before the event is journaled.
        """
        ...

    def show(self, event: AnyEvent, state: State) -> PoolsSeen | None:
        """What the ledger shows the run just before this event is decided; ``None``: nothing new.

        Asked of runs in a tree only.
        """
        ...

    def posted(self) -> tuple[str, ...]:
        """Messages that join the next call, by reference; each is given out once. Asked of runs in a tree only."""
        ...

    def should_continue_as_new(self) -> bool:
        """Asked when nothing is in flight: should the loop hand over to a fresh execution?"""
        ...
