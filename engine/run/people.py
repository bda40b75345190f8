"""People whom runs of a tree await: slots that are free meanwhile, clocks that stand still, the tree left to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.ledger import QUEUED, RUNNING, SUSPENDED
from engine.run.desk import open_requests
from engine.run.result import OpenRequest
from engine.run.seat import Seat, run_id
from engine.store import JournalError, Store

if TYPE_CHECKING:
    from engine.run.tree import Tree


class People:
    """See the module; for one tree."""

    def __init__(self, tree: Tree, store: Store) -> None:
        self._tree = tree
        self._store = store
        self.asked: tuple[OpenRequest, ...] = ()
        """What people were asked when the tree was left to them."""

    def suspended(self, seat: Seat, at: int) -> None:
        """A run awaits people only: its slot is free."""
        tree = self._tree
        if tree.ledger.nodes[seat.id].state == RUNNING:
            tree.ledger.suspend(seat.id, at)
            if seat.parent is not None:
                tree.next(seat.parent)

    def resumes(self, seat: Seat) -> bool:
        """Does a run go on at once? One without a slot may have to wait for one, like any that is woken."""
        going = self._tree.ledger.nodes[seat.id].state in (RUNNING, SUSPENDED, QUEUED)
        return not going or self._tree.ledger.wake(seat.id, self._tree.now())

    def stood(self, seat: Seat, *, paused: bool) -> int:
        """How long (ms) the clock of a seat has stood still, with the time for which it does now or without."""
        node = self._tree.ledger.nodes[seat.id]
        return node.still(self._tree.now()) if paused else node.stood

    def leave(self) -> None:
        """Leave a tree in which nothing goes on and only people are awaited; not one that a host watches itself.

        Nor one in which the time of all that they are asked has run out meanwhile: that is the answer, and it goes on.
        """
        tree = self._tree
        if tree.broken is not None or tree.left or tree.root.kept:
            return
        if not self._at_rest():
            return
        try:
            self._write_down()
            self.asked = open_requests(self._store, tree.root.id)
        except JournalError as exc:
            tree.fail(exc)
            return
        if not self.asked or not self._at_rest():
            return
        tree.left = True
        for seat in sorted(tree.live.values(), key=lambda seat: -seat.depth):
            if seat.effects is None:
                del tree.live[seat.id]
            else:
                seat.effects.leave()

    def _write_down(self) -> None:
        """All that is asked, and that nobody needs to go on with any of the runs."""
        for seat in tuple(self._tree.live.values()):
            if seat.effects is not None:
                seat.effects.write_down()
            elif seat.written:
                self._store.ask(run_id(seat.id, seat.runs + 1), ())

    def _at_rest(self) -> bool:
        if self._tree.root.result is not None:
            return False  # whatever still waits below a run that has ended is about to be ended too
        return all(map(self._rests, self._tree.live.values()))

    def _rests(self, seat: Seat) -> bool:
        if seat.effects is not None:
            return seat.effects.idle
        return seat.parent is not None and seat.id in self._tree.ledger.queue(seat.parent.id)
