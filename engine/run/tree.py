"""A tree of runs in this process: who may start, who waits, who is told of an end, and in what order all of it stops.

The ledger decides what may be started, ``step`` what a run does about it; here both are carried out. Nothing is
started or told in the midst of another run's turn: that is left to the event loop, so that hundreds of children
that end at once are no hundreds of turns inside one another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from msgspec import Struct

from engine.core import events as e
from engine.core.draws import NOTHING, Draw, draw_of
from engine.core.ledger import Ledger
from engine.core.messages import Message
from engine.core.state import Used, total
from engine.run.agents import Role
from engine.run.beginnings import Beginnings
from engine.run.booking import Account
from engine.run.contents import Contents
from engine.run.delegating import Delegating
from engine.run.desk import Desk
from engine.run.effects import Finished, Moved, RunSpec, Suspended
from engine.run.hosting import Hosting
from engine.run.inputs import opening
from engine.run.listeners import Listener
from engine.run.loop import drive, withdrawn
from engine.run.member import TreeEffects
from engine.run.narrator import SharedPools
from engine.run.past import Recorded
from engine.run.people import People
from engine.run.result import ChildRun, OpenRequest, RunResult, child_run
from engine.run.seat import Seat, run_id
from engine.run.stopping import Stopping
from engine.run.streaming import Budget as StreamBudget
from engine.run.suspension import SharedEffects
from engine.run.timers import Clock
from engine.store import Store

Follow = Callable[[Role, RunSpec, Callable[[str], Message]], Listener | None]
"""Who follows a run of a tree: its role, what it is, and how contents are read."""


class Stage(Struct, frozen=True):
    """What a tree needs of the program around it. ``runs`` are the trees of all runs that go on, by the runs' ids."""

    store: Store
    clock: Clock
    follow: Follow
    runs: dict[str, Tree]
    going: dict[str, SharedEffects]
    """What drives each run that goes on, by the runs' ids."""
    asks: bool
    """Can people be asked through the store?"""
    tell: Callable[[StreamBudget], None] | None = None
    """Who follows where the pools of the whole tree stand, if anybody does."""


class Tree:
    """See the module. Belongs to the event loop it was made on.

    ``over`` is the result of the run at the top, once nothing of the tree goes on any more.
    """

    def __init__(self, stage: Stage, id: str, role: Role, thread: str | None, earlier: Used | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._stage = stage
        self.thread = thread
        self.earlier = earlier
        """What the earlier runs of the thread have used."""
        self.ledger = Ledger()
        self.contents = Contents(stage.store)
        self.root = Seat(id, role, None, self._loop.create_future())
        self.seats: dict[str, Seat] = {id: self.root}
        self.by_run: dict[str, Seat] = {}
        self.live: dict[str, Seat] = {}
        """Seats whose run goes on, or is about to, by their ids."""
        self._ended: list[ChildRun] = []
        self.over: asyncio.Future[RunResult] = self._loop.create_future()
        self.delegating = Delegating(self)
        self.broken: BaseException | None = None
        """After this nothing of the tree can go on in this process."""
        self.stopping = Stopping(self)
        self.people = People(self, stage.store)
        self.hosting = Hosting(self, stage.store)
        self._beginnings = Beginnings(self, stage.store)
        self.pools = SharedPools(self.ledger, id, stage.tell)
        self.left = False
        """Has the tree been left to people, who go on with it in another process?"""

    def open(self, at: int, asked: Mapping[str, int] | None = None) -> None:
        """The root is opened: its walls begin."""
        earlier: Draw = NOTHING if self.earlier is None else draw_of(self.earlier)
        root = self.root
        if asked:
            root.asked = dict(asked)
        self.ledger.open(root.id, root.role.budget, at, earlier, asked, self.thread or "")
        root.role = root.role.narrowed(self.ledger.nodes[root.id])

    # Runs.

    def begin(self, seat: Seat, messages: tuple[Message, ...]) -> None:
        """A run of this seat begins. Its slot, if it needs one, has been taken."""
        at = self.now()
        seat.runs += 1
        seat.delegations, seat.wishes = {}, {}
        seat.run = run_id(seat.id, seat.runs)
        if seat.parent is None:
            if seat.id not in self.ledger.nodes:
                self.open(at)
            self.ledger.wake(seat.id, at)
        self.ledger.begin(seat.id)
        spec = self._beginnings.made(seat, messages, at, seat.runs, write=not seat.written)
        seat.written = False
        self.go(seat, spec, ())

    def go(self, seat: Seat, spec: RunSpec, recorded: tuple[Recorded, ...], cause: str = "") -> None:
        """Drive a run, from its journal as far as that goes; ``cause``: only to end it then."""
        stage, role = self._stage, seat.role
        account = self.account(seat)
        listener = stage.follow(role, spec, self.contents.get)
        effects = TreeEffects(
            self,
            seat,
            account,
            role.compiled.initial,
            Desk(stage.store, spec.run, role.compiled.core, role.host.tools) if stage.asks else None,
            role.host,
            spec,
            self.contents,
            stage.store,
            stage.clock,
            role.deadlines,
            listener,
            recorded,
        )
        seat.begun, seat.effects = True, effects
        self.live[seat.id] = self.by_run[spec.run] = seat
        stage.runs[spec.run], stage.going[spec.run] = self, effects
        if cause:
            effects.interrupt(cause)
        if seat is self.root and not recorded:
            effects.note_missing(agent for agent in role.compiled.policy.agent if agent.name not in role.agents)
        effects.inbox.serve(self._drive(seat, spec, effects))
        effects.inbox.result.add_done_callback(partial(self._over, seat))

    def account(self, seat: Seat) -> Account:
        """The account of the present run of a seat with the ledger."""
        if seat.account is None:
            seat.account = Account(self.ledger, seat.id, seat.role.compiled)
        return seat.account

    async def _drive(self, seat: Seat, spec: RunSpec, effects: TreeEffects) -> RunResult:
        step, initial = seat.role.compiled.step, seat.role.compiled.initial
        try:
            finished: Finished | Suspended | Moved
            if seat.cause:
                finished = withdrawn(spec, step, initial, effects, seat.cause)
            else:
                finished = await drive(spec, step, initial, effects)
            return effects.result(finished, seat.role.compiled.used)
        finally:
            effects.close()
            if not self.left:
                self.ledger.ended(seat.id, self.now())

    # Children.

    def spawn(self, parent: Seat, id: str, agent: str, at: int, asked: Mapping[str, int] | None = None) -> Seat:
        """A child that the ledger allows is there, idle."""
        role = parent.role.below(agent)
        self.ledger.spawn(parent.id, id, agent, role.budget, at, asked)
        child = self.seat(parent, id, role.narrowed(self.ledger.nodes[id]))
        child.asked, child.opened = dict(asked or {}), at
        return child

    def seat(self, parent: Seat, id: str, role: Role) -> Seat:
        """Somebody has a seat below another."""
        child = self.seats[id] = parent.below[id] = Seat(id, role, parent, self._loop.create_future())
        return child

    def employ(self, child: Seat, task: str, at: int) -> None:
        """A child gets its task, and runs, or waits for its turn: its run is in the journal from here on."""
        child.messages, child.woken = tuple(opening(task, child.role.instructions)), True
        self.write_down(child, at)
        self.turn(child, at)

    def write_down(self, seat: Seat, at: int) -> None:
        """The next run of a seat is in the journal before it has its turn."""
        self._beginnings.made(seat, seat.messages, at, seat.runs + 1)
        seat.written = True

    def turn(self, child: Seat, at: int) -> None:
        """The child runs, or waits for its turn."""
        self.live[child.id] = child
        if self.ledger.wake(child.id, at):
            self.soon(child)

    def soon(self, child: Seat) -> None:
        """The child has its turn, behind whatever goes on now."""
        self._loop.call_soon(self._start, child)

    def _start(self, child: Seat) -> None:
        if child.effects is not None:
            child.effects.turn()
        if self.broken is not None or self.left or child.begun:
            return
        try:
            self.begin(child, child.messages)
        except Exception as exc:
            self.fail(exc)

    # Ends.

    def _over(self, seat: Seat, future: asyncio.Future[RunResult]) -> None:
        """A run has ended: whoever waits is told, and whoever waits for its slot has its turn."""
        self._stage.runs.pop(seat.run, None)
        self._stage.going.pop(seat.run, None)
        self.by_run.pop(seat.run, None)
        error = future.exception()
        if error is not None:
            self.fail(error)
            return
        if self.broken is not None:
            return
        try:
            self._ended_as(seat, future.result())
        except Exception as exc:
            self.fail(exc)

    def _ended_as(self, seat: Seat, result: RunResult) -> None:
        seat.effects, seat.account = None, None
        self.live.pop(seat.id, None)
        if self.left:
            seat.result = result
        else:
            self.ended(seat, result)
        parent = seat.parent
        if parent is not None and not self.left:
            if parent.effects is not None:
                self.tell(parent, seat)
            self.next(parent)
        self.settle()

    def ended(self, seat: Seat, result: RunResult) -> None:
        """A run of this seat has ended so, now or in an earlier process."""
        seat.result, seat.messages = result, result.messages
        if seat.parent is not None and not seat.kept:  # nobody wakes it again
            seat.result, seat.messages = replace(result, messages=()), ()
        while seat.promised:
            _, child = seat.promised.popitem()
            seat.below.pop(child.id, None)
            self.ledger.close(child.id, self.now())
        seat.spent = total((seat.spent, result.used))
        if seat.parent is not None:
            self._ended.append(child_run(seat.run, seat.role.name, seat.parent.run, result))
            self._close(seat)
        if not seat.ended.done():
            seat.ended.set_result(result)

    def _close(self, seat: Seat) -> None:
        """Close a seat whose run has ended, once everything below it has, and then maybe the one above."""
        parent = seat.parent
        if parent is None or seat.kept or seat.result is None or seat.below:
            return
        self.ledger.close(seat.id, self.now())
        parent.below.pop(seat.id, None)
        self._close(parent)

    def tell(self, parent: Seat, child: Seat) -> None:
        """The end of a child reaches the run that has asked for it."""
        assert parent.effects is not None
        assert child.result is not None
        result = child.result
        ref = self.contents.put(Message("assistant", result.text)) if result.text else ""
        event = e.ChildEnded(self.now(), child.id, result.status, result.used, ref)
        parent.effects.inbox.post(event)

    def next(self, parent: Seat) -> None:
        """Whoever has waited longest gets the slot that is free."""
        at = self.now()
        while id := self.ledger.next_queued(parent.id):
            if not self.ledger.wake(id, at):
                return
            self.soon(self.seats[id])

    def settle(self) -> None:
        """The tree is over when the run at the top has ended, and nothing below it goes on."""
        self.pools.tell()
        result = self.root.result
        if result is not None and not self.live and not self.root.kept and not self.over.done():
            asked: tuple[OpenRequest, ...] = ()
            children = self._ended
            if self.left:
                children = [*children, *self._waiting()]
                asked = self.people.asked
                result = replace(result, because=asked[0].because if asked else result.because)
            else:
                self.ledger.close(self.root.id, self.now())
            self.over.set_result(replace(result, children=tuple(children), requests=asked))

    def _waiting(self) -> list[ChildRun]:
        """The runs below the top that are suspended, as their parents know them, parents before their children."""
        return [
            child_run(seat.run, seat.role.name, seat.parent.run, seat.result)
            for seat in self.seats.values()
            if seat.parent is not None and seat.result is not None and seat.result.suspended
        ]

    def fail(self, error: BaseException) -> None:
        """Something has happened after which nothing of the tree can go on in this process."""
        if self.broken is not None:
            return
        self.broken = error
        for seat in reversed(tuple(self.live.values())):
            if seat.effects is not None:
                seat.effects.inbox.fail(error)
        for seat in self.seats.values():
            _fail(seat.ended, error)
            if seat.effects is not None:
                _fail(seat.effects.inbox.result, error)
        if self.root.kept:
            _fail(self.over, error)
        elif not self.over.done():
            self.over.set_exception(error)

    def now(self) -> int:
        """The time (ms)."""
        return self._stage.clock()

    # Looking.

    def below(self, seat: Seat) -> list[Seat]:
        """A seat and all below it that are not closed, each before those below it."""
        return [seat, *(each for child in seat.below.values() for each in self.below(child))]

    def going(self, seats: Iterable[Seat]) -> list[asyncio.Future[RunResult]]:
        """The results that are still to come of these seats."""
        return [seat.ended for seat in seats if seat.id in self.live]

    def resting(self, seat: Seat, delegates_only: bool) -> None:
        """A run is about to wait for something: for its children only, without a slot, or for something of its own."""
        if self.ledger.waiting(seat.id, self.now(), delegates_only) and seat.parent is not None:
            self.next(seat.parent)


def _fail(future: asyncio.Future[RunResult], error: BaseException) -> None:
    """What waits for this gets the error; nobody needs to."""
    if not future.done():
        future.set_exception(error)
    future.exception()
