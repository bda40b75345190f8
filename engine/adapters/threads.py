"""What the earlier runs of a thread have used, where somebody else's loop makes the runs.

A loop may be left without a word, so a run counts from its beginning with whatever it has used by now.
"""

from __future__ import annotations

from engine.adapters.session import Session
from engine.core.policy import Policy
from engine.core.state import Used, total
from engine.run.threads import counts_threads, used_by
from engine.store.protocol import Store


class Threads:
    """See the module. With a ``journal`` it is what that holds, else what this object has seen."""

    def __init__(self, policy: Policy, journal: Store | None) -> None:
        self._counted = counts_threads(policy)
        self._journal = journal
        self._over: dict[str, Used] = {}
        self._open: dict[str, list[Session]] = {}

    def used(self, thread: str | None) -> Used | None:
        """What the runs of a thread have used so far, where a limit counts for it."""
        if thread is None or not self._counted:
            return None
        if self._journal is not None:
            return used_by(self._journal, thread)
        self._settle(thread)
        if thread not in self._over and thread not in self._open:
            return None
        return total((self._over.get(thread, Used()), *(each.used for each in self._open.get(thread, ()))))

    def remember(self, thread: str | None, used: Used) -> None:
        """What the host itself has kept of a thread that nothing is known of here."""
        if thread is not None and self.used(thread) is None and self._journal is None and self._counted:
            self._over[thread] = used

    def began(self, thread: str | None, session: Session) -> None:
        """A run of the thread begins."""
        if thread is not None and self._counted and self._journal is None:
            self._open.setdefault(thread, []).append(session)

    def _settle(self, thread: str) -> None:
        """Runs that have ended change no more: only their sum is kept."""
        for session in [each for each in self._open.get(thread, ()) if each.outcome is not None]:
            self._open[thread].remove(session)
            self._over[thread] = total((self._over.get(thread, Used()), session.used))
