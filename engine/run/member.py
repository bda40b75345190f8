"""``LocalEffects`` for a run in a tree: it asks the ledger before it decides, and runs of others depend on its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from engine.core import events as e
from engine.core.decisions import AnyDecision, Stop
from engine.core.state import NO_TIME, State
from engine.run import calls
from engine.run.agents import DELEGATE
from engine.run.booking import Account
from engine.run.effects import Effect, ModelCall, ToolRun, settles, tool_key
from engine.run.local import LocalEffects

if TYPE_CHECKING:
    from engine.run.seat import Seat
    from engine.run.tree import Tree


class TreeEffects(LocalEffects):
    """See the module. ``seat`` is the place of the run in the ``tree``, ``account`` its account with the ledger."""

    def __init__(self, tree: Tree, seat: Seat, account: Account, *args: Any) -> None:
        super().__init__(*args)
        self._tree = tree
        self._seat = seat
        self._account = account
        self._stopping = False

    # What the loop asks for.

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        if isinstance(event, e.PoolsSeen):
            return None
        if self._recorded:
            seen = self._recorded[0][0]
            return seen if isinstance(seen, e.PoolsSeen) else None
        return self._account.show(event, state)

    def start(self, effect: Effect) -> None:
        if self._dead and not self._recorded:
            self._revive()  # children are spawned in the order in which they were asked for
        super().start(effect)

    async def next(self, until: int) -> e.AnyEvent | None:
        recorded = self._recorded
        if recorded and isinstance(recorded[0][0], e.PoolsSeen) and len(recorded) > 1:
            seen = recorded[1][0]  # what it was seen for; ``show`` gives that out first
            self._dead.pop(settles(seen), None)
            self.inbox.last = seen.at
            return seen
        if not recorded:
            if self._dead:
                self._revive()
            self._tree.resting(self._seat, self._delegates_only())
            if self._stopping:
                until = max(until, self._tree.grace(self._seat))
        event = await super().next(until)
        if isinstance(event, e.SpawnRequested) and not recorded:
            return self._tree.proposed(self._seat, event)
        return event

    def publish(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        recorded = bool(self._recorded)
        super().publish(event, decision, state)
        self._stopping = self._stopping or isinstance(decision, Stop)
        if not recorded:
            self._account.book(event, decision, state)
            self._tree.decided(self._seat, event, decision)

    def cancel(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        for id in self._seat.delegations:
            if tool_key(id) in keys:
                self._tree.recall(self._seat, id)
        super().cancel(keys)

    def posted(self) -> tuple[str, ...]:
        if self._recorded:
            event = next((event for event, _ in self._recorded if not isinstance(event, e.PoolsSeen)), None)
            return event.refs if isinstance(event, e.CallRequested) else ()
        return self._seat.take_posts()

    # What the tree asks for.

    def interrupt(self, cause: str) -> None:
        """Somebody wants the run to end: those below it end first."""
        if not self._interrupted:
            self._tree.interrupt_below(self._seat, cause)
        super().interrupt(cause)

    @property
    def waits_until(self) -> int:
        """The time of its timer (ms): while it is stopping, the end of its grace."""
        return self._until if self._stopping else NO_TIME

    # Inside.

    def _delegates_only(self) -> bool:
        flights = self._flights.values()
        return bool(flights) and all(isinstance(f.effect, ToolRun) and f.effect.call.name == DELEGATE for f in flights)

    def _attempt(self, effect: ModelCall) -> calls.Attempt:
        if not self._tree.may_delegate(self._seat):
            decision = effect.decision
            effect = structs.replace(effect, decision=structs.replace(decision, hidden=(*decision.hidden, DELEGATE)))
        return super()._attempt(effect)
