"""The state of one run: small, bounded, plain data, never a text.

``vars`` are the variables of the policy's machine, in its order; the rest is what the
machine's fields are computed from. Only ``engine.core.step`` makes states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, structs

from engine.core.breakers import BreakerState
from engine.core.messages import Usage

STATE_VERSION: Final = 2
"""Version of the stored form; a stored state of another version is refused."""

NO_TIME: Final = 1 << 62
"""Later than every deadline (an integer, so that every comparison is of integers)."""


class Used(Struct, frozen=True, gc=False, omit_defaults=True):
    """What has been used: counts, tokens, and cost in micro-dollars."""

    llm_calls: int = 0
    llm_attempts: int = 0
    tool_iterations: int = 0
    tool_calls: int = 0
    unknown_tools: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


def total(each: Iterable[Used]) -> Used:
    """The sum, field by field."""
    sums = [0] * len(Used.__struct_fields__)
    for used in each:
        for i, value in enumerate(structs.astuple(used)):
            sums[i] += value
    return Used(*sums)


class Spent(Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens and micro-dollars that the run has been charged; what calls and tools count is in the machine's meters."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int = 0


class ClientInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """A client that the host has, by the name a policy uses: its model, and the largest output it would ask for."""

    name: str
    model: str = ""
    max_output: int | None = None


class Run(Struct, frozen=True, gc=False, omit_defaults=True):
    """What hardly ever changes during a run. ``deadline`` is its last moment (ms).

    ``thread_used`` is what earlier runs of the thread used, ``above`` the nearest deadline of an ancestor (ms),
    ``opened`` when walls of its node began, where that was not at its start. The clock of walls stands still while only
    people are awaited: then ``started`` and ``deadline`` move, and ``stood`` says by how much in all (ms), for the
    walls that count such time.
    """

    id: str
    started: int
    deadline: int = NO_TIME
    thread: str | None = None
    parent: str | None = None
    fingerprint: str = ""
    profile: tuple[str, ...] = ()
    thread_used: Used = Used()
    clients: tuple[ClientInfo, ...] = ()
    stood: int = 0
    above: int = NO_TIME
    opened: int | None = None


class Failure(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why the attempt in hand failed, kept while the host is consulted; ``step`` is where the ladder stands."""

    reason: str
    step: int = 0
    retry_after: int | None = None
    jitter: int = 0
    shown: bool = False
    ref: str = ""


# A round that was opened by its first tool, before the reply was shown: it was admitted, or refused.
IMPLIED, REFUSED = 1, 2


class Earlier(Struct, frozen=True, gc=False, omit_defaults=True):
    """An attempt that another has followed, with what has been charged for it."""

    call: str
    attempt: int
    model: str = ""
    charged: Usage | None = None


EARLIER_ATTEMPTS: Final = 16
"""Attempts before the one in hand of which what was charged is remembered."""


class CallState(Struct, frozen=True, gc=False, omit_defaults=True):
    """The call in hand, or the last one; ``attempt`` 0 while a host's function is asked before it.

    ``charged`` is what has been charged for this attempt, so that cumulative reports are charged once; ``earlier`` are
    the attempts before it, of this call and the one before: what they used may still be told. ``implied`` is IMPLIED
    or ``REFUSED`` once tools of a reply were asked for that was not shown yet, else 0: more of them may follow.
    ``not_before`` is when a further attempt is due (ms).
    """

    id: str
    attempt: int
    client: str
    deadline: int = NO_TIME
    model: str = ""
    input_tokens: int | None = None
    max_output: int | None = None
    pauses: int = 0
    charged: Usage | None = None
    failure: Failure | None = None
    earlier: tuple[Earlier, ...] = ()
    implied: int = 0
    not_before: int = 0


def remembered(call: CallState, following: str) -> tuple[Earlier, ...]:
    """The attempts that are still known once the next one, of the call named ``following``, has begun."""
    kept = call.earlier
    if following != call.id:
        kept = tuple(known for known in kept if known.call == call.id)
    if call.attempt:
        kept = (*kept, Earlier(call.id, call.attempt, call.model, call.charged))
    return kept[-EARLIER_ATTEMPTS:]


# How far a tool call of the current round has come.
WAITING, STARTED, ENDED, REPLIED, ASKED = 0, 1, 2, 3, 4

LATE_ATTEMPTS: Final = 53
"""Attempts of one tool call whose late ends are told apart: as many bits as every JSON reader keeps."""

EXTERNAL = 7
"""Not in our hands: the host's user executes the call, or the tool has deferred it; its result will be reported."""


class RoundCall(Struct, frozen=True, gc=False, omit_defaults=True):
    """One tool call of the round in hand. ``why`` says why a call that was not executed got a reply.

    ``started`` and ``ended`` are times (ms), ``outcome`` how the execution ended and ``result`` the key of its result:
    what breakers are told when the round is complete. ``probes`` are the breakers whose probe it is. While a person is
    asked, ``deadline`` is the end of the time to answer. ``unreported`` are attempts that the host gave up before they
    had ended, as bits (of the first ``LATE_ATTEMPTS``): what they used may still be told, once.

    ``kind`` is that of the proposal, empty for ``function``. ``unknown`` and ``problem`` are remembered only while a
    person is asked about a limit, until the reply is judged again.
    """

    id: str
    tool: str
    args: str
    status: int
    attempt: int = 0
    why: str = ""
    deadline: int = NO_TIME
    started: int = 0
    ended: int = 0
    outcome: str = ""
    result: str = ""
    probes: tuple[int, ...] = ()
    unreported: int = 0
    kind: str = ""
    unknown: bool = False
    problem: str = ""


class LimitHit(Struct, frozen=True, gc=False, omit_defaults=True):
    """The limit that ended a run."""

    resource: str
    scope: str
    owner: str
    used: int
    maximum: int


class Refusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A limit of a tree that refuses something, and the rule behind it (``file:line``, or a named default)."""

    limit: LimitHit
    because: str = ""


class Pools(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the ledger of a tree shows one run of itself, just before something may be admitted.

    ``others`` is what others than this run have used or hold of its node's own limits, by their ids: descendants, and
    the node's earlier runs. ``refused`` is the nearest pool above that does not leave what the next call needs,
    ``rounds`` one that leaves no round, ``tools`` how many executions are left above and ``tools_limit`` where.
    ``output`` is the largest output (tokens) that is left above, ``deadline`` the nearest deadline above (ms) and
    ``wall`` whose it is, as it stands at its end. ``opened`` is when the node's own wall began (ms): its spawn, later
    by the time its clock stood still.
    """

    others: tuple[tuple[str, int], ...] = ()
    refused: Refusal | None = None
    rounds: Refusal | None = None
    tools: int | None = None
    tools_limit: Refusal | None = None
    output: int | None = None
    deadline: int = NO_TIME
    wall: Refusal | None = None
    opened: int | None = None


class Outcome(Struct, frozen=True, gc=False, omit_defaults=True):
    """How a run ended.

    ``status`` is ``completed``, ``finalized``, ``incomplete`` (a limit), ``failed`` (an error) or ``cancelled``;
    ``reason`` a resource, ``llm_failure``, ``finalization_disobeyed``, ``empty_answer``, ``usage_unknown``,
    ``price_unknown``, ``tool_answer``, ``tool_stop`` or the cause of a cancellation; ``ref`` names the answer (or the
    partial text, where ``partial`` is true).
    """

    status: str
    reason: str = ""
    error: str = ""
    limit: LimitHit | None = None
    client: str = ""
    ref: str = ""
    partial: bool = False
    used: Used = Used()
    fingerprint: str = ""
    because: str = ""


class Book(Struct, frozen=True, gc=False, omit_defaults=True):
    """What changes rarely, or never, while a run goes on.

    ``tool_counts`` are executions by tool rule with a limit, ``crossed`` and ``told`` thresholds as bits. While the run
    is stopping ``outcome`` is how it will end and ``until`` the end of the grace. ``paused`` is up to when the time
    was counted for which the run has been suspended (ms), ``None`` while it is not. While a person is asked about a
    limit, ``until`` is the end of the time to answer and ``held`` names the reply that waits for it.

    ``client`` is the one calls go to instead of the host's own, until ``client_until`` (ms); ``switched`` are the
    clients this run has had, ``exchange`` those that failed in the present call and its fallbacks. ``pools`` is what
    the ledger of a tree has shown last.
    """

    run: Run
    tool_counts: tuple[int, ...] = ()
    spent: Spent = Spent()
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
