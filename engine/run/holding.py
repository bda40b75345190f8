"""The leases on a run (and on its thread) while this process drives it, kept up by a timer of the event loop.

Whoever loses one stops at once: the run is driven elsewhere, and what it would write is refused anyhow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from engine.store import JournalError, Lease, LeaseError
from engine.store.owners import gone, new_owner
from engine.store.protocol import Leases

LEASE_MS: Final = 30_000
"""How long a process that has died keeps a run, where nobody can see that it is dead."""

_BEATS: Final = 3
"""So often is a lease renewed in its time."""


class Holding:
    """Leases on several keys, all or none. Belongs to the event loop it was made on.

    Raises:
        LeaseError: another process has one of them. Nothing is held.
    """

    def __init__(self, store: Leases, keys: Sequence[str]) -> None:
        self._store = store
        self._ttl = LEASE_MS
        self._leases: list[Lease] = []
        self._timer: asyncio.TimerHandle | None = None
        owner = new_owner()
        try:
            for key in keys:
                self._leases.append(store.acquire(key, owner, LEASE_MS))
        except BaseException:
            self.release()
            raise

    def keep(self, lost: Callable[[LeaseError], None]) -> None:
        """Renew them from now on. ``lost`` is told, once, if somebody has taken one over."""
        loop = asyncio.get_running_loop()
        beat = self._ttl / _BEATS / 1000

        def renew() -> None:
            try:
                self._leases = [self._store.renew(lease, self._ttl) for lease in self._leases]
            except LeaseError as error:
                self._timer = None
                lost(error)
                return
            except JournalError:
                pass  # a disk that is full, say: the next event will tell, or the next beat succeeds
            self._timer = loop.call_later(beat, renew)

        self._timer = loop.call_later(beat, renew)

    def release(self) -> None:
        """Give them back. One that cannot be given back runs out by itself, for everybody but this process."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leases, self._leases = self._leases, []
        for lease in leases:
            try:
                self._store.release(lease)
            except JournalError:
                gone(lease.owner)
