"""What a driver has going: who may drive a tree, and one run at a time for each thread that limits count for."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.state import Used, total
from engine.run.errors import RunError
from engine.run.holding import Holding
from engine.run.threads import used_by
from engine.store import LeaseError, Store
from engine.store.leases import thread_key


class Claims:
    """See the module. ``journal``: a store, or ``None``: then what threads have used is known to this object only.

    ``counted``: there are limits that count per thread.
    """

    def __init__(self, journal: Store | None, *, counted: bool) -> None:
        self._journal = journal
        self._counted = counted
        self._used: dict[str, Used] = {}
        self._live: set[str] = set()
        """Threads with a run going on."""

    def enter(self, top: str, thread: str | None) -> Claim:
        """From here on this process drives the tree of ``top``, and the thread has a run going on.

        Raises:
            RunError: the thread has one already.
            LeaseError: another process drives the tree, or a run of the thread.
        """
        counted = thread if self._counted else None
        if counted is not None:
            if counted in self._live:
                raise RunError(
                    f"thread `{counted}` has a run going on, and the policy counts per thread: await that one first"
                )
            self._live.add(counted)
        if self._journal is None:
            return Claim(self, counted, None)
        try:
            return Claim(self, counted, Holding(self._journal, [top, *([thread_key(counted)] if counted else [])]))
        except BaseException:
            self.left(counted, None)
            raise

    def thread_used(self, thread: str | None) -> Used | None:
        """What the thread's earlier runs have used, where that counts."""
        if thread is None or not self._counted:
            return None
        return self._used.get(thread) if self._journal is None else used_by(self._journal, thread)

    def left(self, thread: str | None, used: Used | None) -> None:
        """The run of a thread that counts is over, and has used so much, if it has ended."""
        if thread is None:
            return
        self._live.discard(thread)
        if used is not None and self._journal is None:
            self._used[thread] = total((self._used.get(thread, Used()), used))


class Claim:
    """That this process drives one tree. ``leave`` ends it, once."""

    def __init__(self, claims: Claims, thread: str | None, held: Holding | None) -> None:
        self._claims = claims
        self._thread = thread
        self._held = held

    def keep(self, lost: Callable[[LeaseError], None]) -> None:
        """Keep it up by a timer of the running event loop; ``lost`` is told if another process takes it over."""
        if self._held is not None:
            self._held.keep(lost)

    def leave(self, used: Used | None = None) -> None:
        """Nothing of the tree goes on here any more; ``used`` is what it has used, if it has ended."""
        if self._held is not None:
            self._held.release()
        self._claims.left(self._thread, used)
