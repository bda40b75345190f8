"""What a host does to a tree that it drives by itself: runs that it wakes, and what the journal keeps of its acts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.core.messages import Message
from engine.run.acts import AnyAct, encoded
from engine.run.seat import Seat, run_id
from engine.store import Store

if TYPE_CHECKING:
    from engine.run.tree import Tree


class Hosting:
    """See the module; for one tree."""

    def __init__(self, tree: Tree, store: Store) -> None:
        self._tree = tree
        self._store = store

    def wake(self, seat: Seat, messages: tuple[Message, ...]) -> str:
        """Another run of a seat that the ledger allows to be woken, when it has its turn; its id.

        Raises what has broken the tree, if it is broken: nobody would ever hear of the run.
        """
        tree = self._tree
        if tree.broken is not None:
            raise tree.broken
        if seat.ended.done():
            seat.ended = asyncio.get_running_loop().create_future()
        seat.messages, seat.begun, seat.cause, seat.woken = messages, False, "", True
        try:
            tree.write_down(seat, tree.now())
        except Exception as exc:
            tree.fail(exc)
            raise
        tree.turn(seat, tree.now())
        return run_id(seat.id, seat.runs + 1)

    def shut(self, seat: Seat) -> None:
        """Nothing goes on at a seat or below it any more: it is closed, leaves first."""
        tree = self._tree
        for each in reversed(tree.below(seat)):
            each.kept = False
            if each.parent is not None:
                each.parent.below.pop(each.id, None)
        tree.ledger.close(seat.id, tree.now())

    def acted(self, act: AnyAct) -> None:
        """What the host has done is in the journal. Raises what has broken the tree, if that cannot be written."""
        try:
            self._store.act(self._tree.root.id, encoded(act))
        except Exception as exc:
            self._tree.fail(exc)
            raise
