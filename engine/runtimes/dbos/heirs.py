"""Who goes on with the runs of a worker that has died. DBOS by itself leaves them to a process of the same name.

No clocks are compared: a worker is dead when the one that looks has seen its row unchanged for a whole lease, while it
could itself write. Each dead worker has one heir, by a change of its row that only one can make.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.runtimes.dbos.board import LEFT, Board, Peer

_REMEMBERED = 20
"""Leases after which a dead worker without runs is forgotten."""


class Heirs:
    """See the module; for the worker ``me``. ``lease`` in seconds, ``clock`` tells seconds of any origin."""

    def __init__(self, board: Board, me: str, lease: float, clock: Callable[[], float]) -> None:
        self._board = board
        self._me = me
        self._lease = lease
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        """The beat of each worker, and since when it is that one."""
        self._mine: dict[str, float] = {}
        """Dead workers that this one is the heir of, and when they last had runs."""

    def blind(self) -> None:
        """The board cannot be seen: nobody is judged by the time that passes meanwhile."""
        self._seen.clear()

    def dead(self) -> list[str]:
        """The workers whose runs this one is to go on with."""
        now, peers = self._clock(), self._board.peers()
        names = {peer.worker for peer in peers}
        for peer in peers:
            if peer.heir == self._me:
                self._mine.setdefault(peer.worker, now)
            elif peer.worker != self._me and self._gone(peer, names, now) and self._board.inherit(peer, self._me):
                self._mine[peer.worker] = now
        for worker, since in list(self._mine.items()):
            if now - since > self._lease * _REMEMBERED:
                self._board.forget(worker)
                del self._mine[worker]
        return list(self._mine)

    def had_runs(self, worker: str) -> None:
        """A dead worker had runs just now."""
        self._mine[worker] = self._clock()

    def _gone(self, peer: Peer, names: set[str], now: float) -> bool:
        """Is nobody there for the runs of a worker, neither itself nor its heir?"""
        if peer.heir:
            return peer.heir not in names or peer.heir in self._mine
        beat, since = self._seen.get(peer.worker, (None, now))
        if beat != peer.beat:
            since = now
            self._seen[peer.worker] = peer.beat, now
        return peer.beat == LEFT or now - since >= self._lease
