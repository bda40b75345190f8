"""How a run of a tree begins: what it is told, and the record that the journal has of it before its first event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from engine.core.messages import Message
from engine.core.state import Used, total
from engine.run.effects import RunSpec
from engine.run.records import HostRecord, record_of
from engine.run.seat import Seat, run_id
from engine.store import Store

if TYPE_CHECKING:
    from engine.run.tree import Tree


class Beginnings:
    """See the module; for one tree."""

    def __init__(self, tree: Tree, store: Store) -> None:
        self._tree = tree
        self._store = store

    def made(self, seat: Seat, messages: tuple[Message, ...], at: int, number: int, *, write: bool = True) -> RunSpec:
        """The run, of this number, that a seat is about to begin; ``write``: it is in the journal from here on."""
        tree = self._tree
        spec = seat.role.spec(
            run_id(seat.id, number),
            at,
            tuple(map(tree.contents.put, messages)),
            thread=tree.thread,
            thread_used=self._thread_used(seat, number),
            parent=seat.parent.run if seat.parent is not None and seat.parent.runs else None,
            node=seat.id,
        )
        if write:
            self._write(seat, spec, number)
        return spec

    def _thread_used(self, seat: Seat, number: int) -> Used | None:
        """What the thread, as far as the run is to be told of it, has used before this run."""
        tree = self._tree
        if seat.parent is not None or tree.thread is None:
            return None
        return total((tree.earlier or Used(), seat.spent)) if number > 1 else tree.earlier

    def _write(self, seat: Seat, spec: RunSpec, number: int) -> None:
        root = self._tree.root
        host = HostRecord.of(seat.role.host, spec, seat.role.compiled.policy, seat.budgets)
        record = structs.replace(
            record_of(spec, structs.replace(host, posts=seat.joined)),
            root=None if seat is root and number == 1 else root.id,
            node=seat.id,
            agent=seat.role.name,
            depth=seat.depth,
        )
        self._store.begin(record)
