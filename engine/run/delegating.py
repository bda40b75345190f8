"""Children that runs of a tree want: asking the run that is to have one, and waiting for what comes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from engine.core import events as e
from engine.core.decisions import AnyDecision, Queue, Refuse, Spawn
from engine.core.state import Refusal
from engine.run.delegation import answer_of, not_started, refusal_of
from engine.run.results import ToolResult
from engine.run.seat import Seat, Wish
from engine.run.tools import ToolContext

if TYPE_CHECKING:
    from engine.run.tree import Tree


class Delegating:
    """See the module; for one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def possible(self, seat: Seat) -> bool:
        """May the model of this seat be offered to delegate? Not where it could never be allowed any more."""
        node = self._tree.ledger.nodes[seat.id]
        return node.levels > 0 and node.children < node.budget.children.maximum

    async def carry(self, agent: str, task: str, context: ToolContext) -> ToolResult:
        """Carry out a delegation: have the child spawned, and wait for its end.

        When the execution is cut or cancelled, the child is cancelled, and its end is waited for as long as anybody
        waits for this.
        """
        tree = self._tree
        seat = tree.by_run[context.run]
        child = seat.delegations.get(context.id)
        if child is None and (child := seat.promised.pop(context.id, None)):
            seat.delegations[context.id] = child
            tree.employ(child, task, tree.now())
        if child is None:
            answer = self.wished(seat, agent, Wish(task), context.id)
            if isinstance(answer, Refusal):
                return refusal_of(agent, answer)
            child = answer
        if child is None:
            return not_started(agent)
        try:
            return answer_of(agent, await asyncio.shield(child.ended))
        except asyncio.CancelledError:
            if not context.cancelled or tree.left:
                raise
            tree.stopping.cancel(child, "parent")
            return answer_of(agent, await asyncio.shield(child.ended))

    def wished(self, seat: Seat, agent: str, wish: Wish, id: str = "") -> Seat | Refusal | None:
        """Let the run of a seat decide about a child; nothing comes of it where that run is at its end.

        ``id`` is the tool call that asks for it; without one the host does.
        """
        if seat.effects is None:
            return None
        seat.wishes[id] = wish
        seat.effects.inbox.post(e.SpawnRequested(self._tree.now(), "", agent, id))
        seat.wishes.pop(id, None)
        return wish.answer

    def proposed(self, seat: Seat, event: e.SpawnRequested) -> e.SpawnRequested:
        """The wish for a child, with what the ledger says of it at this moment."""
        at, ledger = event.at, self._tree.ledger
        refused = ledger.may_spawn(seat.id, at)
        queued = refused is None and bool(event.id) and ledger.full(seat.id)
        return structs.replace(event, child=ledger.next_id(seat.id), refused=refused, queued=queued)

    def decided(self, seat: Seat, event: e.AnyEvent, decision: AnyDecision) -> None:
        """A run has decided; what it means for those below is done before anything else happens."""
        if isinstance(event, e.ToolEnded):
            seat.delegations.pop(event.id, None)
        elif isinstance(event, e.SpawnRequested) and (wish := seat.wishes.get(event.id)) is not None:
            if isinstance(decision, Refuse):
                wish.answer = decision.refusal
            elif isinstance(decision, Spawn | Queue):
                wish.answer = child = self._tree.spawn(seat, event.child, event.agent, event.at, wish.asked)
                if event.id:
                    seat.delegations[event.id] = child
                    self._tree.employ(child, wish.task, event.at)

    def recall(self, seat: Seat, id: str) -> None:
        """A delegation is not wanted any more."""
        self._tree.stopping.cancel(seat.delegations[id], "parent")
