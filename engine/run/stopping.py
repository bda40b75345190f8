"""A tree that is to end, or part of it: leaves first, whatever has not begun too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.state import NO_TIME
from engine.run.seat import Seat

if TYPE_CHECKING:
    from engine.run.tree import Tree


class Stopping:
    """See the module; for one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def everything(self, cause: str) -> None:
        """The run at the top is to end, and everything below it."""
        if self._tree.root.effects is not None:
            self._tree.root.effects.interrupt(cause)

    def below(self, seat: Seat, cause: str) -> None:
        """Whatever runs below a seat is to end."""
        for child in reversed(tuple(seat.below.values())):
            self.cancel(child, cause)

    def cancel(self, child: Seat, cause: str) -> None:
        """A run is to end, and everything below it first."""
        if child.effects is None:
            self.below(child, cause)
        if child.effects is not None:
            child.effects.interrupt(cause)
        elif child.id in self._tree.live and not child.cause:
            # It has not begun: it does so without a slot, so that it has an end like any other.
            child.cause = cause
            queued = child.id in self._tree.ledger.queue(child.parent.id) if child.parent else False
            self._tree.ledger.ended(child.id, self._tree.now())
            if queued:
                self._tree.soon(child)

    def grace(self, seat: Seat) -> int:
        """Until when (ms) a seat that is stopping waits for those below it, which are stopping too."""
        waits = (child.effects.waits_until for child in seat.below.values() if child.effects is not None)
        return max((until + 1 for until in waits if until < NO_TIME), default=0)
