"""Connections for many requests at the same time: several small pools in the place of one large one.

At each request the HTTP library looks through a whole pool, and once more for each connection that is idle; and once a
pool has more connections than it may keep, it closes every one that becomes idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx

SIZE: Final = 64
"""Requests that one pool carries at the same time."""


class Pool:
    """One pool: ``http`` makes its requests, ``busy`` are going on."""

    __slots__ = ("busy", "http")

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.busy = 0


class Pools:
    """See the module. Belongs to one event loop. ``make`` makes a pool; ``one``: there is to be no second one."""

    def __init__(self, make: Callable[[], httpx.AsyncClient], *, one: bool = False) -> None:
        self._make = make
        self._one = one
        self._pools = [Pool(make())]
        self._busy = 0

    def take(self) -> Pool:
        """The pool for a request that begins: the first with room, so that the others run empty when there are few."""
        self._busy += 1
        for pool in self._pools:
            if pool.busy < SIZE or self._one:
                break
        else:
            pool = Pool(self._make())
            self._pools.append(pool)
        pool.busy += 1
        return pool

    async def give(self, pool: Pool) -> None:
        """A request has ended. A pool that is empty is closed if the others have room for all and a pool more."""
        pool.busy -= 1
        self._busy -= 1
        if pool.busy or self._busy > (len(self._pools) - 2) * SIZE:
            return
        spare = next((each for each in reversed(self._pools[1:]) if not each.busy), None)
        if spare is not None:
            self._pools.remove(spare)
            await spare.http.aclose()

    async def aclose(self) -> None:
        """Close all of them."""
        for pool in self._pools:
            await pool.http.aclose()
