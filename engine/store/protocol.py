"""What a store offers, and the records it keeps. Nothing here knows how or where they are kept.

The journal of a run is the truth about it: its policy, and every event with the decision it got, in
order. The state and the transcript are folds over it. Events name contents by reference; a content
is stored before, or together with, the first event that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from engine.core.decisions import AnyDecision, Request
from engine.core.events import AnyEvent
from engine.core.state import Used
from engine.core.vocabulary import SEMANTICS_VERSION
from engine.decoding import decoder

RUNNING = "running"
"""Status of a run that has no ``End``: it goes on somewhere, or was killed and can be resumed."""

SUSPENDED = "suspended"
"""Status of a run that waits for people, and for nothing else but runs below it."""


class JournalError(Exception):
    """A store cannot do what it was asked. The message says what happened and what to do; nothing is half-written."""


class LeaseError(JournalError):
    """Another process drives this run, or this thread."""


class MisfitError(JournalError):
    """An answer that is none to its request: too much, or of another kind. The request can still be answered."""


class TooLateError(JournalError):
    """A request was answered before, or nobody waits for its answer any more."""


class RunRecord(Struct, frozen=True, omit_defaults=True):
    """One run. ``policy`` is the JSON of the ``Policy`` it is bound to, ``started`` milliseconds since 1970 (UTC).

    ``parent`` is the run that spawned it, ``thread`` the conversation it belongs to. ``host`` is JSON that only the
    host reads, for whatever it needs to resume. ``status`` is ``running``, ``suspended`` or how the run ended
    (``Outcome.status``), and then ``used`` is what it used.

    A run of a tree has the run at its top as ``root`` (``None``: it is one itself), its place as ``node`` (the id of
    the child, which may run several times), its ``agent`` and how many runs are above it (``depth``).
    """

    run: str
    policy: str
    started: int
    fingerprint: str = ""
    thread: str | None = None
    parent: str | None = None
    host: str = "{}"
    semantics: int = SEMANTICS_VERSION
    status: str = RUNNING
    used: Used | None = None
    root: str | None = None
    node: str | None = None
    agent: str = ""
    depth: int = 0

    @property
    def top(self) -> str:
        """The run at the top of the tree, which may be this one."""
        return self.run if self.root is None else self.root

    @property
    def ended(self) -> bool:
        """Has it an ``End``?"""
        return self.status not in (RUNNING, SUSPENDED)


class Step(Struct, frozen=True):
    """One event with the decision it got. ``digest`` (hex) is empty for a decision that starts nothing."""

    event: AnyEvent
    decision: AnyDecision
    digest: str


class Recorded(Struct, frozen=True):
    """A run as the journal has it; ``steps[n]`` is event number ``n``."""

    record: RunRecord
    steps: tuple[Step, ...]


class Asked(Struct, frozen=True, omit_defaults=True):
    """What a run asks of a person, as people need to see it.

    ``arguments`` is the JSON that the model sent for a tool call, ``because`` the rule of the policy that asks.
    """

    request: Request
    arguments: str = ""
    because: str = ""


class Answer(Struct, frozen=True, omit_defaults=True):
    """An answer to a request. ``by`` is who gave it and ``at`` when (ms since 1970), which the store writes down.

    ``amount`` is how much more a limit gets, in its unit (0: what was asked for). ``value`` is JSON, the arguments with
    which a tool call may run in place of the model's; or a text, the result of an external call. ``expired`` and
    ``nobody`` come from the run itself, never from people.
    """

    verdict: Literal["granted", "refused", "expired", "nobody"]
    amount: int = 0
    value: str | None = None
    by: str = ""
    at: int = 0


class RequestRecord(Struct, frozen=True, omit_defaults=True):
    """One request of a run, asked ``at`` (ms). Its ``id`` is unique in the journal and can be typed: ``RUN:CALL``.

    ``taken``: the run has gone on with the answer, which is one of its events now.
    """

    id: str
    run: str
    asked: Asked
    at: int
    answer: Answer | None = None
    taken: bool = False


class Lease(Struct, frozen=True):
    """Who alone may drive what ``key`` names, ``since`` when and ``until`` when (ms since 1970) unless it is renewed.

    ``key`` is the run at the top of a tree, or ``thread:NAME``.
    """

    key: str
    owner: str
    since: int
    until: int


class Journal(Protocol):
    """Runs and their events, append only. Every method may raise ``JournalError``."""

    def begin(self, record: RunRecord) -> None:
        """Write down a new run, before its first event. Its ``run`` must be new."""

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        """Write down event number ``seq`` (from 0, no gaps) and its decision, before the decision is obeyed.

        A number that is taken is refused: somebody else drives the same run. If this store holds the lease on the run's
        tree, or has held it, the event is written only while nobody else has taken it. A run that was suspended is
        running from here on; an event that brings a person's answer settles the request.
        """

    def rebind(self, *records: RunRecord) -> None:
        """Runs of a tree that go on under another policy, or host: what their records say of them changes, their events
        do not. All of them are bound, or none.
        """

    def act(self, tree: str, act: str) -> None:
        """Write down what the host of a tree has done (JSON), behind all that it did before. As guarded as events."""

    def acts(self, tree: str) -> list[str]:
        """What the host of a tree has done, in order; nothing for a tree that no host drives by itself."""
        ...

    def runs(self, thread: str | None = None, *, tree: str | None = None) -> list[RunRecord]:
        """All runs, or those of one thread, or of the tree with this run at its top, in the order of their start."""
        ...

    def record(self, run: str) -> RunRecord:
        """The record of one run, without its steps."""
        ...

    def load(self, run: str) -> Recorded:
        """One run with its steps."""
        ...


class Contents(Protocol):
    """Texts and messages by the SHA-256 of their bytes: the same content is kept once."""

    def put(self, data: bytes) -> str:
        """Keep a content; its reference. It is safe once the next event is, or the store is closed."""
        ...

    def get(self, ref: str) -> bytes:
        """The bytes of a reference. Raises ``JournalError`` if there are none."""
        ...


class Requests(Protocol):
    """What suspended runs ask of people, and the answers. Every method may raise ``JournalError``."""

    def ask(self, run: str, asked: Sequence[Asked]) -> list[RequestRecord]:
        """Write down everything that a run waits for: it is suspended from here until its next event.

        Called after the event that suspended the run, again whenever it is suspended. What is asked already stays as it
        is, with an answer that has come; what is not asked any more is settled. The records, in the order of ``asked``.
        A run that has ended asks nothing.
        """
        ...

    def answer(self, request: str, answer: Answer) -> RequestRecord:
        """Answer a request, once and for all, from whatever process. The run takes it up when it is resumed.

        Refused: an unknown id, a second answer, one after ``until``, one to a run that has ended, or that does not fit.
        """
        ...

    def requests(self, *, run: str | None = None, tree: str | None = None, open: bool = False) -> list[RequestRecord]:
        """All requests, those of one run, or of the tree with this run at its top, in the order of asking.

        ``open``: only those that can be answered now.
        """
        ...


class Leases(Protocol):
    """Who drives what. A lease that is not renewed in time, or whose process is known to be dead, can be taken over."""

    def acquire(self, key: str, owner: str, ttl: int) -> Lease:
        """Take the lease on ``key`` for ``ttl`` milliseconds. Raises ``LeaseError`` if another owner has it.

        ``owner`` is ``engine.store.owners.new_owner()``, one for each attempt to drive something.
        """
        ...

    def renew(self, lease: Lease, ttl: int) -> Lease:
        """The lease, for ``ttl`` milliseconds from now. Raises ``LeaseError`` if another owner has taken it over."""
        ...

    def release(self, lease: Lease) -> None:
        """Give it back. One that somebody else has taken over stays theirs."""

    def leases(self) -> list[Lease]:
        """Those that hold now, in the order of their keys."""
        ...


class Store(Journal, Contents, Requests, Leases, Protocol):
    """Journal, contents, requests and leases in one place."""

    def close(self) -> None:
        """Write what is pending and let go of the place. Closing twice does nothing."""


for _record in (RunRecord, RequestRecord):
    decoder(_record)  # stores convert them, in whatever thread
