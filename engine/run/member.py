"""``SharedEffects`` for a run in a tree: it asks the ledger before it decides, and runs of others depend on its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from engine.core import events as e
from engine.core.agents import AgentRules
from engine.core.core import Core
from engine.core.decisions import AnyDecision, Note, Stop
from engine.core.ledger import WAITING
from engine.core.machine.plan import origin_of
from engine.core.state import NO_TIME, State
from engine.core.step import suspended
from engine.core.texts import duration
from engine.run import calls
from engine.run.agents import DELEGATE
from engine.run.booking import Account
from engine.run.deadlines import Cut
from engine.run.effects import Approval, Effect, ModelCall, ToolRun, settles, tool_key
from engine.run.suspension import SharedEffects

if TYPE_CHECKING:
    from engine.run.flight import Flight
    from engine.run.past import Recorded
    from engine.run.seat import Seat
    from engine.run.tree import Tree


class TreeEffects(SharedEffects):
    """See the module. ``seat`` is the place of the run in the ``tree``, ``account`` its account with the ledger."""

    def __init__(self, tree: Tree, seat: Seat, account: Account, *args: Any) -> None:
        super().__init__(*args)
        self._tree = tree
        self._seat = seat
        self._account = account
        self._stopping = False
        self._aside: list[e.AnyEvent] = []
        """What has happened to a suspended run that waits for a slot to go on."""
        self._times: dict[str, _Time] = {}
        """The time that each open delegation has, by its key."""

    # What the loop asks for.

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        if isinstance(event, e.PoolsSeen):
            return None
        if self._recorded:
            seen = self._recorded[0][0]
            return seen if isinstance(seen, e.PoolsSeen) else None
        return self._account.show(event, state)

    def start(self, effect: Effect) -> None:
        if self._past.dead and not self._recorded:
            self._revive()  # children are spawned in the order in which they were asked for
        super().start(effect)

    async def next(self, until: int) -> e.AnyEvent | None:
        recorded = self._recorded
        if len(recorded) > 1 and _seen(recorded[0]) and not _seen(recorded[1]):  # a kill may leave one without
            seen = recorded[1][0]  # what it was seen for; ``show`` gives that out first
            self._past.happened(seen)
            self.inbox.last = seen.at
            return seen
        if not recorded:
            if self._past.dead:
                self._revive()
            self._tree.resting(self._seat, self._delegates_only())
            if self._stopping:
                until = max(until, self._tree.stopping.grace(self._seat))
        event = await super().next(until)
        while event is not None and not recorded and not self._goes_on(event):
            self._aside.append(event)
            event = await super().next(NO_TIME)
        if isinstance(event, e.SpawnRequested) and not recorded:
            return self._tree.delegating.proposed(self._seat, event)
        return event

    def publish(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        recorded = bool(self._recorded)
        super().publish(event, decision, state)
        self._stopping = self._stopping or isinstance(decision, Stop)
        if not recorded:
            self._account.book(event, decision, state)
            self._tree.pools.tell()
            self._tree.delegating.decided(self._seat, event, decision)
            if suspended(state) and not isinstance(event, e.PoolsSeen):  # what that was seen for may end the suspension
                self._tree.people.suspended(self._seat, event.at)

    def cancel(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        for id in self._seat.delegations:
            if tool_key(id) in keys:
                self._tree.delegating.recall(self._seat, id)
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
            self._tree.stopping.below(self._seat, cause)
        super().interrupt(cause)

    def note_missing(self, rules: Iterable[AgentRules]) -> None:
        """The policy has rules for agents that nobody has registered: whoever wrote them may want to know."""
        for rule in rules:
            because = origin_of(rule.origin, f"agent {rule.name}")
            text = f"the policy has rules for the agent {rule.name}, which this driver does not have"
            self._note(Note("warn", text, because=because))

    def turn(self) -> None:
        """A run that was suspended has a slot again."""
        aside, self._aside = self._aside, []
        self.inbox.post_all(aside)  # an answer that came after the time to give it is dropped when that is over

    def leave(self) -> None:
        """The tree does not wait for people in this process."""
        self.inbox.leave()

    @property
    def idle(self) -> bool:
        """Are only people awaited, or only runs below this one, or only a slot to go on with answers that are kept?"""
        if self.rests or self.inbox:
            return self.rests
        if self._aside:
            return all(map(self._kept, self._aside))
        return bool(self._flights) and all(_delegates(flight.effect) for flight in self._flights.values())

    @property
    def waits_until(self) -> int:
        """The time of its timer (ms): while it is stopping, the end of its grace."""
        return self._until if self._stopping else NO_TIME

    # Inside.

    def _goes_on(self, event: e.AnyEvent) -> bool:
        """A run without a slot needs one to go on: none to be ended, and none while runs below it go on anyway."""
        if self._stopping or isinstance(event, e.Cancelled | e.SpawnRequested):
            return True
        waits = self._tree.ledger.nodes[self._seat.id].activity == WAITING
        if waits and (isinstance(event, e.Tick | e.ChildEnded | e.UsageReported) or self._still_delegated(event)):
            return True
        return self._tree.people.resumes(self._seat)

    def _still_delegated(self, event: e.AnyEvent) -> bool:
        """A tool call has ended, and others are still carried out by runs below: no call follows yet."""
        return isinstance(event, e.ToolEnded) and any(_delegates(flight.effect) for flight in self._flights.values())

    def _kept(self, event: e.AnyEvent) -> bool:
        """Does another process that goes on with the run hear of this too?"""
        return isinstance(event, e.Tick) or (self._desk is not None and self._desk.keeps(settles(event)))

    def _leave(self) -> None:
        if self.rests:
            self._tree.people.leave()

    def _only_people(self) -> bool:
        """Or runs below it, for which nobody else should have to wait to be asked."""
        return super()._only_people() or (bool(self._parked) and not self._stopping and self._delegates_only())

    def _delegates_only(self) -> bool:
        flights = [flight.effect for flight in self._flights.values() if not isinstance(flight.effect, Approval)]
        return bool(flights) and all(map(_delegates, flights))

    def _above(self, flight: Flight) -> Cut | None:
        pools = self._state.book.pools
        if pools is None or pools.wall is None or flight.deadline < pools.deadline:
            return None
        limit = pools.wall.limit
        return Cut(f"wall {duration(limit.maximum)} of {limit.owner}", pools.wall.because)

    def _launch(self, effect: Effect, decided: int | None) -> None:
        super()._launch(effect, decided)
        if isinstance(effect, ToolRun) and _delegates(effect):
            # One of an earlier process: its run knows of what it was told last, not of what others have seen since.
            stood = self._seat.stood if decided is None else self._tree.people.stood(self._seat, paused=False)
            self._times[effect.key] = _Time(effect, decided, self._seat.role.compiled.core, self._state, stood)

    def _rang(self) -> None:
        for key, time in tuple(self._times.items()):
            flight = self._flights.get(key)
            if flight is None:
                del self._times[key]
            elif flight.deadline < NO_TIME:
                child = self._seat.delegations.get(time.id)
                below = 0 if child is None else self._tree.people.stood(child, paused=True)
                flight.deadline = time.over(below, self._tree.people.stood(self._seat, paused=True))
                if time.timeout and flight.deadline == time.own + below:
                    flight.decided = flight.deadline - time.timeout
        super()._rang()

    def _attempt(self, effect: ModelCall) -> calls.Attempt:
        if not self._tree.delegating.possible(self._seat):
            decision = effect.decision
            effect = structs.replace(effect, decision=structs.replace(decision, hidden=(*decision.hidden, DELEGATE)))
        return super()._attempt(effect)


class _Time:
    """The time of one delegation: none of it is time in which only people are awaited, whoever asks them.

    Its own ``timeout`` (ms, 0: none) stands still with the clock of its child, the run's walls with that of the run.
    """

    __slots__ = ("_stood", "_wall", "id", "own", "timeout")

    def __init__(self, effect: ToolRun, decided: int | None, core: Core, state: State, stood: int) -> None:
        decision = effect.decision
        self.id = decision.id
        self.timeout = core.tools.facts(effect.call.name).timeout
        self._wall = core.amounts.deadline(state.vars, state.book.run, final=False)
        self._stood = stood
        self.own = NO_TIME
        """When its own timeout is over (ms), as long as nothing has stood still; that of an earlier process is known
        where it is what bounded it."""
        if self.timeout and decided is not None:
            self.own = decided + self.timeout
        elif self.timeout and decision.deadline < self._wall:
            self.own = decision.deadline

    def over(self, below: int, here: int) -> int:
        """The end of it (ms), where the clock of its child has stood still for so long, and that of the run."""
        return min(self.own + below, self._wall + here - self._stood)


def _seen(recorded: Recorded) -> bool:
    return isinstance(recorded[0], e.PoolsSeen)


def _delegates(effect: Effect) -> bool:
    return isinstance(effect, ToolRun) and effect.call.name == DELEGATE
