"""What a durable engine offers to one run: ``Environment``. Each engine's module has one.

The code of a run is gone through again after a crash. So whatever an environment gives out comes in the same order
again, and what it was asked to begin is not begun again where its end is on record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from engine.run.deadlines import Cut
from engine.run.effects import ModelCall, ResolverRun, ToolRun
from engine.runtimes.records import Happening, Order, Report


class Job(Struct, frozen=True, gc=False):
    """An effect to be carried out. ``began`` is when it was decided (ms), ``deadline`` when its time is over (ms).

    ``cut`` is the rule that ends it then, ``digest`` that of the decision it comes from: it goes back with the end.
    """

    effect: ModelCall | ToolRun | ResolverRun
    began: int
    deadline: int
    cut: Cut | None
    digest: str

    @property
    def key(self) -> str:
        """The effect's key, unique in the run while it is open."""
        return self.effect.key


class Environment(Protocol):
    """See the module. ``replaying``: is what happens now on record already, so that nobody is to be told again?"""

    @property
    def replaying(self) -> bool: ...

    async def next(self, jobs: Sequence[Job], report: Report, until: int) -> Happening:
        """Begin these jobs, show the report to whoever asks, and wait for the next thing that happens.

        It is the end of a job, a signal, or the ``Timer`` if nothing else happens before ``until`` (ms since 1970,
        ``engine.core.state.NO_TIME``: never). The order of what is given out is on record. An end is given out once;
        that of a job that ``stop`` was called for may be left out.
        """
        ...

    def cancel(self, key: str) -> None:
        """Ask a job to end. Its end is given out as usual."""
        ...

    def leave(self, key: str) -> None:
        """Nobody waits for the end of this job any more."""
        ...

    def spawn(self, order: Order) -> None:
        """Begin the run of an agent below this one, once for its id. Its end is given out as ``ChildOver``."""
        ...

    def cancel_child(self, run: str, cause: str) -> None:
        """Ask the run of an agent below this one to end. Its end is given out as usual."""
        ...

    def should_continue_as_new(self) -> bool:
        """Asked when nothing is in flight: should the run go on in a fresh execution?"""
        ...
