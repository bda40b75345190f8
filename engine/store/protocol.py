"""What a store offers, and the records it keeps. Nothing here knows how or where they are kept.

The journal of a run is the truth about it: its policy, and every event with the decision it got, in
order. The state and the transcript are folds over it. Events name contents by reference; a content
is stored before, or together with, the first event that names it.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from engine.core.decisions import AnyDecision
from engine.core.events import AnyEvent
from engine.core.state import Used
from engine.core.vocabulary import SEMANTICS_VERSION

RUNNING = "running"
"""Status of a run that has no ``End``: it goes on somewhere, or was killed and can be resumed."""


class JournalError(Exception):
    """A store cannot do what it was asked. The message says what happened and what to do; nothing is half-written."""


class RunRecord(Struct, frozen=True, omit_defaults=True):
    """One run. ``policy`` is the JSON of the ``Policy`` it is bound to, ``started`` milliseconds since 1970 (UTC).

    ``parent`` is the run that spawned it, ``thread`` the conversation it belongs to. ``host`` is JSON that only the
    host reads, for whatever it needs to resume. ``status`` is ``running`` or how the run ended
    (``Outcome.status``), and then ``used`` is what it used.
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


class Step(Struct, frozen=True):
    """One event with the decision it got. ``digest`` (hex) is empty for a decision that starts nothing."""

    event: AnyEvent
    decision: AnyDecision
    digest: str


class Recorded(Struct, frozen=True):
    """A run as the journal has it; ``steps[n]`` is event number ``n``."""

    record: RunRecord
    steps: tuple[Step, ...]


class Journal(Protocol):
    """Runs and their events, append only. Every method may raise ``JournalError``."""

    def begin(self, record: RunRecord) -> None:
        """Write down a new run, before its first event. Its ``run`` must be new."""

    def append(self, run: str, seq: int, event: AnyEvent, decision: AnyDecision) -> None:
        """Write down event number ``seq`` (from 0, no gaps) and its decision, before the decision is obeyed.

        A number that is taken is refused: somebody else drives the same run.
        """

    def runs(self, thread: str | None = None) -> list[RunRecord]:
        """All runs, or those of one thread, in the order in which they began."""
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


class Store(Journal, Contents, Protocol):
    """Journal and contents in one place."""

    def close(self) -> None:
        """Write what is pending and let go of the place. Closing twice does nothing."""
