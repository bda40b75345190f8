"""The state of one run: small, bounded, plain data, never a text.

``vars`` are the variables of the policy's machine, in its order; the rest is what the
machine's fields are computed from. Only ``engine.core.step`` makes states.

What few runs need stands in a record of its own, ``extra``, which is there only while something in it is not as usual;
it is read like any other field, and changed by ``with_extra``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, structs

from engine.core.breakers import BreakerState
from engine.core.messages import Usage
from engine.core.outcome import NOTHING_USED, LimitHit, Outcome, Refusal, Used, total

__all__ = ["LimitHit", "Outcome", "Refusal", "Used", "total"]
"""What the core's users find here too."""

STATE_VERSION: Final = 3
"""Version of the stored form; a stored state of another version is refused."""

NO_TIME: Final = 1 << 62
"""Later than every deadline (an integer, so that every comparison is of integers)."""

T = TypeVar("T")
R = TypeVar("R", "Run", "CallState", "RoundCall", "Book")


class _Extra(Generic[T]):
    """A field of a record's ``extra``, or what it usually is where there is none."""

    def __init__(self, usual: T) -> None:
        self.usual = usual

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, record: Any, owner: type) -> T:
        extra = record.extra
        value: T = self.usual if extra is None else getattr(extra, self.name)
        return value


def with_extra(record: R, **changes: Any) -> R:
    """The record with these fields of its ``extra``; where all are as usual again, it has none."""
    usual: Any = _USUAL[type(record)]
    extra = structs.replace(record.extra or usual, **changes)
    return structs.replace(record, extra=None if extra == usual else extra)


class Spent(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens and micro-dollars that the run has been charged; what calls and tools count is in the machine's meters."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0


NOTHING_SPENT: Final = Spent()


class ClientInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """A client that the host has, by the name a policy uses: its model, and the largest output it would ask for."""

    name: str
    model: str = ""
    max_output: int | None = None


class RunExtra(Struct, frozen=True, gc=False, omit_defaults=True):
    """``thread_used`` is what earlier runs of the thread used, ``lacks`` the abilities that the host does not have.

    ``clients`` are those the host has, only where the policy sends calls elsewhere. ``above`` is the nearest deadline
    of an ancestor (ms), ``opened`` when walls of its node began, where that was not at its start, ``stood`` for how
    long in all its clock has stood still (ms). ``node`` is empty where it is called like the run.
    """

    thread: str | None = None
    parent: str | None = None
    thread_used: Used = NOTHING_USED
    lacks: tuple[str, ...] = ()
    stood: int = 0
    above: int = NO_TIME
    opened: int | None = None
    node: str = ""
    clients: tuple[ClientInfo, ...] = ()


class Run(Struct, frozen=True, gc=False, omit_defaults=True):
    """What hardly ever changes during a run. ``deadline`` is its last moment (ms).

    The clock of walls stands still while only people are awaited: then ``started`` and ``deadline`` move, and
    ``stood`` says by how much in all, for the walls that count such time.
    """

    id: str
    started: int
    deadline: int = NO_TIME
    fingerprint: str = ""
    extra: RunExtra | None = None

    thread = _Extra[str | None](None)
    parent = _Extra[str | None](None)
    thread_used = _Extra(NOTHING_USED)
    lacks = _Extra[tuple[str, ...]](())
    stood = _Extra(0)
    above = _Extra(NO_TIME)
    opened = _Extra[int | None](None)
    node = _Extra("")
    clients = _Extra[tuple[ClientInfo, ...]](())


class Failure(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why an attempt failed, kept while somebody is asked; ``step`` is where its ladder stands."""

    reason: str
    step: int = 0
    retry_after: int | None = None
    jitter: int = 0
    shown: bool = False
    ref: str = ""


# A round that was opened by its first tool, before the reply was shown: it was admitted, or refused.
IMPLIED, REFUSED = 1, 2


class Earlier(Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt that another has followed, with what has been charged for it, and the one before it."""

    call: str
    attempt: int
    model: str = ""
    charged: Usage | None = None
    previous: Earlier | None = None


EARLIER_ATTEMPTS: Final = 16
"""Attempts before the one in hand of which what was charged is remembered."""


class CallExtra(Struct, frozen=True, gc=False, omit_defaults=True):
    """``pauses`` are those of the provider so far, ``not_before`` is when a further attempt is due (ms).

    ``failure`` is why the attempt in hand failed, while the host is consulted about it; ``instead_of`` the call that
    failed, with its failure, while somebody is asked before its fallback, this call, can be admitted. ``implied`` is
    IMPLIED or ``REFUSED`` once tools of a reply were asked for that was not shown yet, else 0: more of them may follow.
    """

    pauses: int = 0
    failure: Failure | None = None
    instead_of: CallState | None = None
    implied: int = 0
    not_before: int = 0


class CallState(Struct, frozen=True, gc=False, omit_defaults=True):
    """The call in hand, or the last one; ``attempt`` 0 while a host's function is asked before it.

    When the attempt is cut was in its decision: no rule asks for it again.

    ``charged`` is what has been charged for this attempt, so that cumulative reports are charged once; ``previous`` is
    the attempt before it, of this call or the one before: what such attempts used may still be told.
    """

    id: str
    attempt: int
    client: str
    model: str = ""
    input_tokens: int | None = None
    max_output: int | None = None
    charged: Usage | None = None
    previous: Earlier | None = None
    extra: CallExtra | None = None

    pauses = _Extra(0)
    failure = _Extra[Failure | None](None)
    instead_of = _Extra["CallState | None"](None)
    implied = _Extra(0)
    not_before = _Extra(0)

    @property
    def earlier(self) -> tuple[Earlier, ...]:
        """The attempts before this one that are still known, the last one first."""
        known: list[Earlier] = []
        attempt = self.previous
        while attempt is not None:
            known.append(attempt)
            attempt = attempt.previous
        return tuple(known)


def chained(attempts: Iterable[Earlier]) -> Earlier | None:
    """Attempts as ``CallState.previous`` wants them, from the last one to the first."""
    before = None
    for known in reversed(tuple(attempts)):
        before = Earlier(known.call, known.attempt, known.model, known.charged, before)
    return before


def remembered(call: CallState, following: str) -> Earlier | None:
    """The attempts that are still known once the next one, of the call named ``following``, has begun."""
    previous = call.previous
    if previous is not None and (following != call.id or previous.previous is not None):
        known = (known for known in call.earlier if following == call.id or known.call == call.id)
        previous = chained(list(known)[: EARLIER_ATTEMPTS - bool(call.attempt)])
    return Earlier(call.id, call.attempt, call.model, call.charged, previous) if call.attempt else previous


# How far a tool call of the current round has come.
WAITING, STARTED, ENDED, REPLIED, ASKED = 0, 1, 2, 3, 4

LATE_ATTEMPTS: Final = 53
"""Attempts of one tool call whose late ends are told apart: as many bits as every JSON reader keeps."""

EXTERNAL = 7
"""Not in our hands: the host's user executes the call, or the tool has deferred it; its result will be reported."""


class ToolExtra(Struct, frozen=True, gc=False, omit_defaults=True):
    """``why`` says why a call that was not executed got a reply. ``kind`` is the proposal's, empty for ``function``.

    ``outcome`` is how the execution ended, at ``ended`` (ms), and ``result`` the key of its result: what breakers are
    told when the round is complete. ``probes`` are the breakers whose probe it is. ``unreported`` are attempts that the
    host gave up before they had ended, as bits (of the first ``LATE_ATTEMPTS``): what they used may still be told,
    once. ``unknown`` and ``problem`` are remembered only while a person is asked about a limit, until the reply is
    judged again.
    """

    why: str = ""
    ended: int = 0
    outcome: str = ""
    result: str = ""
    probes: tuple[int, ...] = ()
    unreported: int = 0
    kind: str = ""
    unknown: bool = False
    problem: str = ""


class RoundCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """One tool call of the round in hand. While a person is asked, ``deadline`` is the end of the time to answer.

    ``args`` is the key of its arguments and ``started`` when it began (ms), both only where a breaker watches the tool;
    the key also while a person is asked about a limit, until the reply is judged again.
    """

    id: str
    tool: str
    args: str
    status: int
    attempt: int = 0
    deadline: int = NO_TIME
    started: int = 0
    extra: ToolExtra | None = None

    why = _Extra("")
    ended = _Extra(0)
    outcome = _Extra("")
    result = _Extra("")
    probes = _Extra[tuple[int, ...]](())
    unreported = _Extra(0)
    kind = _Extra("")
    unknown = _Extra(usual=False)
    problem = _Extra("")


class Pools(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the ledger of a tree shows one run of itself, just before something may be admitted.

    ``others`` is what others than this run have taken of its node's own limits, by their ids: descendants, and the
    node's earlier runs; ``aside`` the part of it that is not used, but held by them or carved for them. ``refused`` is
    the nearest pool above that does not leave what the next call needs, ``rounds`` one that leaves no round, ``tools``
    how many executions are left above and ``tools_limit`` where. ``output`` is the largest output (tokens) that is left
    above, ``deadline`` the nearest deadline above (ms) and ``wall`` whose it is, as it stands at its end. ``opened`` is
    when the node's own wall began (ms): its spawn, later by the time its clock stood still.
    """

    others: tuple[tuple[str, int], ...] = ()
    aside: tuple[tuple[str, int], ...] = ()
    refused: Refusal | None = None
    rounds: Refusal | None = None
    tools: int | None = None
    tools_limit: Refusal | None = None
    output: int | None = None
    deadline: int = NO_TIME
    wall: Refusal | None = None
    opened: int | None = None


class BookExtra(Struct, frozen=True, gc=False, omit_defaults=True):
    """``tool_counts`` are executions by tool rule with a limit, ``crossed`` and ``told`` thresholds as bits.

    While the run is stopping ``outcome`` is how it will end and ``until`` the end of the grace. ``paused`` is up to
    when the time was counted for which the run has been suspended (ms), ``None`` while it is not. While a person is
    asked about a limit, ``until`` is the end of the time to answer and ``held`` names the reply that waits for it.

    ``client`` is the one calls go to instead of the host's own, until ``client_until`` (ms); ``switched`` are the
    clients this run has had, ``exchange`` those that failed in the present call and its fallbacks. ``pools`` is what
    the ledger of a tree has shown last.
    """

    tool_counts: tuple[int, ...] = ()
    crossed: int = 0
    told: int = 0
    outcome: Outcome | None = None
    until: int = NO_TIME
    breakers: tuple[BreakerState, ...] = ()
    client: str = ""
    client_until: int = NO_TIME
    switched: tuple[str, ...] = ()
    exchange: tuple[str, ...] = ()
    paused: int | None = None
    held: str = ""
    pools: Pools | None = None


class Book(Struct, frozen=True, gc=False, omit_defaults=True):
    """What does not change with every event: the run, what it has been charged, and what few runs need."""

    run: Run
    spent: Spent = NOTHING_SPENT
    extra: BookExtra | None = None

    tool_counts = _Extra[tuple[int, ...]](())
    crossed = _Extra(0)
    told = _Extra(0)
    outcome = _Extra[Outcome | None](None)
    until = _Extra(NO_TIME)
    breakers = _Extra[tuple[BreakerState, ...]](())
    client = _Extra("")
    client_until = _Extra(NO_TIME)
    switched = _Extra[tuple[str, ...]](())
    exchange = _Extra[tuple[str, ...]](())
    paused = _Extra[int | None](None)
    held = _Extra("")
    pools = _Extra[Pools | None](None)


NOTHING_MORE: Final = BookExtra()

_USUAL: Final = {Run: RunExtra(), CallState: CallExtra(), RoundCall: ToolExtra(), Book: NOTHING_MORE}


class State(Struct, frozen=True, gc=False, omit_defaults=True):
    """See the module. ``n`` is the number of the last step that started something."""

    vars: tuple[int, ...]
    at: int
    n: int
    call: CallState | None
    round: tuple[RoundCall, ...]
    book: Book


class _Stored(Struct, frozen=True):
    v: int
    state: State


_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(_Stored)


def encode_state(state: State) -> bytes:
    """Canonical JSON of a state, with its format version."""
    return _encoder.encode(_Stored(STATE_VERSION, state))


def decode_state(data: bytes) -> State:
    """The state of ``encode_state``'s JSON. Raises ``ValueError`` for another version or another shape."""
    stored = _decoder.decode(data)
    if stored.v != STATE_VERSION:
        raise ValueError(f"this state has format version {stored.v}, this core reads version {STATE_VERSION}")
    return stored.state
