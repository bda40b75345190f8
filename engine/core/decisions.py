"""What ``step`` tells a host to do: one frozen record a decision.

``because`` names the rule that decided (``file:line`` of the policy, or ``default: …``); ``notes``
are for people and telemetry. Both stay outside the digest. A decision that starts something
carries a step number ``n``. Source: section 2 of the semantics (``docs/semantics.md``).
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct, structs

from engine.core.state import NO_TIME, Outcome, Refusal


class Note(Struct, frozen=True, gc=False, omit_defaults=True):
    """Something worth telling: ``kind`` is ``warn``, ``extended``, ``estimated``, ``clock``, ``skipped``…"""

    kind: str
    text: str = ""
    resource: str = ""
    used: int = 0
    maximum: int = 0
    because: str = ""


class Decision(Struct, frozen=True, gc=False, tag_field="decision", omit_defaults=True):
    """Base of all decisions."""


class Continue(Decision, frozen=True, tag="continue"):
    """Nothing stands in the way: ask for the next call."""

    because: str = ""
    notes: tuple[Note, ...] = ()


class Wait(Decision, frozen=True, tag="wait"):
    """Something is still going on. ``wake_at``: send a ``Tick`` then if nothing else happens (ms)."""

    wake_at: int
    because: str = ""
    notes: tuple[Note, ...] = ()


class Call(Decision, frozen=True, tag="call"):
    """Make one attempt of a call.

    A ``final`` call is made without tools: ``tools`` says how (``offer`` for an ordinary call, ``strip`` or
    ``forbid``), and ``instruction`` (or the content ``instruction_ref``) is its last user message, never stored.
    ``notices`` are transient too. ``max_output`` is the largest output in tokens that the pools leave, if they do.
    ``deadline``: cut the attempt then (ms). ``retract``: text shown for that ``call.attempt`` is taken back.
    ``hidden``: tools that are not declared, because an open breaker hides them.
    """

    n: int
    call: str
    attempt: int
    client: str
    deadline: int
    because: str = ""
    notes: tuple[Note, ...] = ()
    max_output: int | None = None
    final: bool = False
    tools: Literal["offer", "strip", "forbid"] = "offer"
    instruction: str = ""
    instruction_ref: str = ""
    notices: tuple[str, ...] = ()
    why: str = ""
    retract: str = ""
    hidden: tuple[str, ...] = ()


class Retry(Decision, frozen=True, tag="retry"):
    """Report ``RetryDue`` at ``not_before`` (ms) for a further attempt of the call.

    ``retract``: text that was shown for this ``call.attempt`` is taken back.
    """

    n: int
    call: str
    attempt: int
    client: str
    not_before: int
    because: str = ""
    notes: tuple[Note, ...] = ()
    retract: str = ""


class Execute(Decision, frozen=True, tag="execute"):
    """Run this tool call; cut it at ``deadline`` (ms).

    ``i`` is its place among the reply's function calls, from 0; its step number is ``n.i``. A further
    attempt starts at ``not_before`` (ms), without being requested again.
    """

    n: int
    i: int
    id: str
    attempt: int
    deadline: int
    because: str = ""
    notes: tuple[Note, ...] = ()
    not_before: int = 0


class Ask(Decision, frozen=True, tag="ask"):
    """Ask a person whether this tool call may run, until ``until`` (ms), and report ``ApprovalGiven``.

    ``external``: the host's user executes the call; what comes back is its ``ToolEnded``, with attempt 0.
    """

    n: int
    i: int
    id: str
    until: int
    because: str = ""
    notes: tuple[Note, ...] = ()
    external: bool = False


class Reply(Decision, frozen=True, tag="reply"):
    """Do not run this tool call: store ``text`` as its result (or the content ``ref``)."""

    i: int
    id: str
    text: str
    why: str
    ref: str = ""
    because: str = ""
    notes: tuple[Note, ...] = ()


class RunTools(Decision, frozen=True, tag="run_tools"):
    """The verdict on each call of a reply, in the model's order. ``complete``: nothing is left to run."""

    n: int
    round: int
    verdicts: tuple[Execute | Ask | Reply, ...]
    complete: bool = False
    because: str = ""
    notes: tuple[Note, ...] = ()


class Request(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a suspended run waits for, from a person.

    ``tool``: may this call run? ``external``: the result of a call that the host's user executes. Both have the call's
    ``id`` and its ``tool``. ``extension``: may the limit ``id`` grow by ``up_to``? ``used`` and ``maximum`` are in its
    unit. No answer by ``until`` (ms) is a refusal.
    """

    id: str
    kind: Literal["tool", "extension", "external"]
    tool: str = ""
    resource: str = ""
    used: int = 0
    maximum: int = 0
    up_to: int = 0
    until: int = NO_TIME


class Suspend(Decision, frozen=True, tag="suspend"):
    """Nothing is in flight and only people are awaited: keep the state, and report their answers when they come.

    ``until`` (ms) is the nearest end of a request's time: send a ``Tick`` then.
    """

    n: int
    requests: tuple[Request, ...]
    until: int = NO_TIME
    because: str = ""
    notes: tuple[Note, ...] = ()


class Spawn(Decision, frozen=True, tag="spawn"):
    """Start a run of this child, which is spawned first if it is new."""

    n: int
    child: str
    agent: str
    because: str = ""
    notes: tuple[Note, ...] = ()


class Queue(Decision, frozen=True, tag="queue"):
    """The child is spawned and waits for a slot; it runs when one is free."""

    child: str
    because: str = ""
    notes: tuple[Note, ...] = ()


class Refuse(Decision, frozen=True, tag="refuse"):
    """The child is not spawned, or not woken: ``refusal`` says which limit, whose, and what is used of it."""

    child: str
    refusal: Refusal
    because: str = ""
    notes: tuple[Note, ...] = ()


class Resolve(Decision, frozen=True, tag="resolve"):
    """Ask the host's function ``name`` for a text, and report ``Resolved``. ``limit`` and ``used`` tell it why."""

    n: int
    name: str
    resource: str
    used: int
    maximum: int
    deadline: int
    because: str = ""
    notes: tuple[Note, ...] = ()


class Stop(Decision, frozen=True, tag="stop"):
    """The run must end but something is in flight: cancel it, store the synthetic results, report the ends.

    ``cancel_call`` is the model call to cancel, ``cancel`` the tool calls; ``until`` the end of the grace (ms).
    """

    n: int
    until: int
    cancel_call: str = ""
    cancel: tuple[str, ...] = ()
    close: tuple[Reply, ...] = ()
    because: str = ""
    notes: tuple[Note, ...] = ()


class End(Decision, frozen=True, tag="end"):
    """The run has ended. ``close``: results to store for calls that have none."""

    n: int
    outcome: Outcome
    close: tuple[Reply, ...] = ()
    because: str = ""
    notes: tuple[Note, ...] = ()


class Illegal(Decision, frozen=True, tag="illegal"):
    """The host broke the protocol; the state is unchanged."""

    problem: str
    because: str = "default: protocol"
    notes: tuple[Note, ...] = ()


AnyDecision = (
    Continue
    | Wait
    | Call
    | Retry
    | Execute
    | Ask
    | Reply
    | RunTools
    | Suspend
    | Spawn
    | Queue
    | Refuse
    | Resolve
    | Stop
    | End
    | Illegal
)

NUMBERED = (Call, Retry, RunTools, Execute, Suspend, Spawn, Resolve, Stop, End)
"""Decisions that start something: they have a step number and a digest."""

_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(AnyDecision)


def encode_decision(decision: AnyDecision) -> bytes:
    """Canonical JSON of a decision."""
    return _encoder.encode(decision)


def decode_decision(data: bytes | str) -> AnyDecision:
    """The decision of ``encode_decision``'s JSON. Raises ``msgspec.ValidationError`` for anything else."""
    decision: AnyDecision = _decoder.decode(data)
    return decision


def bare(decision: AnyDecision) -> AnyDecision:
    """What a decision makes the host do: without ``because`` and ``notes``, at every level.

    Which line decided is no part of it: a comment added to the policy moves lines and changes no decision.
    """
    if isinstance(decision, RunTools):
        verdicts = tuple(structs.replace(v, because="", notes=()) for v in decision.verdicts)
        return structs.replace(decision, verdicts=verdicts, because="", notes=())
    if isinstance(decision, Stop):
        return structs.replace(decision, close=_bare(decision.close), because="", notes=())
    if isinstance(decision, End):
        outcome = structs.replace(decision.outcome, because="")
        return structs.replace(decision, outcome=outcome, close=_bare(decision.close), because="", notes=())
    return structs.replace(decision, because="", notes=())


def _bare(replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
    return tuple(structs.replace(reply, because="", notes=()) for reply in replies)


def digest(decision: AnyDecision) -> str:
    """SHA-256 (hex) over ``bare(decision)``."""
    return hashlib.sha256(_encoder.encode(bare(decision))).hexdigest()
