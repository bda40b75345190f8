"""``Effects`` in this process: tasks, one timer, one inbox, a journal.

Tasks of the event loop carry effects out, each one effect at a time and, where one leads to the next, one after the
other. Each effect ends exactly once, by whatever comes first: its own end, its deadline, or (when the run is over)
nothing at all; later ends reach nobody. A run is resumed by handing over what its journal holds: those events come
out of ``next`` first, nothing is started meanwhile, and what was in flight at the end of them is started then, with
the idempotency keys it had.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from engine.core import events as e
from engine.core.decisions import AnyDecision, Note
from engine.core.state import NO_TIME, State, Used
from engine.run import calls, executions
from engine.run.approvals import Later
from engine.run.contents import Contents
from engine.run.cutting import Cuts
from engine.run.deadlines import Cut, Deadlines
from engine.run.effects import (
    Approval,
    Effect,
    Finished,
    ModelCall,
    Moved,
    ResolverRun,
    RunSpec,
    Suspended,
    ToolRun,
    settles,
)
from engine.run.flight import Flight, Work
from engine.run.host import Host
from engine.run.inbox import Inbox
from engine.run.listeners import Listener
from engine.run.past import Past, Recorded
from engine.run.performer import Performer
from engine.run.result import OpenRequest, RunResult, result_of, suspended_result
from engine.run.timers import Alarm, Clock
from engine.store.protocol import Journal

_IN_A_ROW: Final = 8
"""So many effects does one task carry out: a run that never waits must let others have the event loop too."""


class LocalEffects:
    """See the module. One object drives one run; it belongs to the event loop it was made on."""

    def __init__(
        self,
        host: Host,
        spec: RunSpec,
        contents: Contents,
        journal: Journal,
        clock: Clock,
        deadlines: Deadlines,
        listener: Listener | None = None,
        recorded: Iterable[Recorded] = (),
    ) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self._host = host
        self._spec = spec
        self._append = journal.append
        self._clock = clock
        self._notes: list[Note] = []
        self._listener = listener
        self._past = Past(spec.run, recorded)
        self._recorded = self._past.ahead
        self._seq = len(self._recorded)
        self._flights: dict[str, Flight] = {}
        self._lingering: set[asyncio.Task[None]] = set()
        """Tasks nobody waits for, kept from being collected while they run."""
        self._context = contextvars.copy_context()
        self._free = False
        """Has a task just ended its effect, so that it can carry out one that starts now?"""
        self._taken: Flight | None = None
        """The effect that it will carry out."""
        self.inbox: Inbox[RunResult] = Inbox(loop, spec.started)
        self._alarm = Alarm(loop, clock, self._rang)
        self._until = NO_TIME
        self._interrupted = False
        self._cuts = Cuts(deadlines, clock, self._note, self._above)
        self._performer = Performer(host, spec, contents, clock, self._note)
        self.conversation = self._performer.conversation
        self.put = contents.put
        self.get = contents.get

    # What the loop asks for.

    def start(self, effect: Effect) -> None:
        if self._recorded:
            self._past.dead[effect.key] = effect
        else:
            self._launch(effect, self.inbox.last)

    async def next(self, until: int) -> e.AnyEvent | None:
        if self._recorded:
            event = self._past.happened(self._recorded[0][0])
            self.inbox.last = event.at
            return event
        inbox = self.inbox
        if self._past.dead and not inbox:  # a run that is resumed only to be cancelled starts nothing again
            self._revive()
        if not inbox:
            self._until = until
            self._alarm.set(until)
            self._at_rest()
            if not inbox:
                await inbox.wait()
            self._until = NO_TIME
        return inbox.take() if inbox else None

    def cancel(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._past.stop(key)
            flight = self._flights.get(key)
            if flight is None or flight.stopped:
                continue
            flight.stopped = True
            if not flight.begun:
                # A task that is cancelled before its first step never comes to report its end.
                del self._flights[key]
                self._abandon(flight)
                self.inbox.post(self._cuts.made(flight, "cancelled"))
                continue
            work = flight.work
            if isinstance(work, executions.Execution):
                work.context.cancelled = True
                if work.in_thread:
                    continue  # it ends by itself within the grace, or is left behind
            if flight.task is not None:
                flight.task.cancel()

    def forget(self, key: str) -> None:
        self._past.dead.pop(key, None)
        flight = self._flights.pop(key, None)
        if flight is not None:
            self._abandon(flight)
        self.inbox.drop(lambda event: settles(event) == key)

    def publish(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        listener = self._listener
        if self._recorded:
            self._past.decided(event, decision)
            if listener is not None:
                listener.replayed(event, state)
            return
        self._append(self._spec.run, self._seq, event, decision)
        self._seq += 1
        if listener is not None:
            listener.decided(event, decision, state)

    def show(self, event: e.AnyEvent, state: State) -> e.PoolsSeen | None:
        return None

    def posted(self) -> tuple[str, ...]:
        return ()

    def should_continue_as_new(self) -> bool:
        return False

    # What the driver asks for.

    def interrupt(self, cause: str) -> None:
        """Somebody wants the run to end. Only the first time counts, only from the loop's own thread."""
        if not self._interrupted:
            self._interrupted = True
            self.inbox.post(e.Cancelled(self._clock(), cause))

    @property
    def notes(self) -> tuple[Note, ...]:
        """What went wrong on the host's side in this process, in the order in which it was told."""
        return tuple(self._notes)

    def result(
        self,
        finished: Finished | Suspended | Moved,
        used: Callable[[State], Used],
        asked: Callable[[], tuple[OpenRequest, ...]] = tuple,
    ) -> RunResult:
        """What whoever awaits the run gets: its end, or that it waits for people, who are ``asked`` so much."""
        assert not isinstance(finished, Moved)  # no process of its own goes on in another one
        spec, said = self._spec, self.conversation(finished.transcript)
        if isinstance(finished, Suspended):
            return suspended_result(spec.run, spec.thread, used(finished.state), said, asked(), self.notes)
        return result_of(spec.run, spec.thread, finished.outcome, said, self.get, self.notes)

    def close(self) -> None:
        """The run is over: leave behind what is still going on."""
        if self._listener is not None:
            self._listener.over()
        if self.loop.is_closed():
            return
        self._alarm.stop()
        for flight in self._flights.values():
            self._abandon(flight)
        self._flights.clear()

    # Effects.

    def _launch(self, effect: Effect, decided: int | None) -> None:
        work: Work = None
        deadline = NO_TIME
        waits = False
        if isinstance(effect, ModelCall):
            work, deadline = self._attempt(effect), effect.decision.deadline
        elif isinstance(effect, ToolRun):
            work, deadline = self._performer.execution(effect), effect.decision.deadline
            waits = effect.decision.not_before > 0
            decided = effect.decision.not_before or decided
        elif isinstance(effect, ResolverRun):
            deadline = min(effect.decision.deadline, self._clock() + self._host.resolver_timeout)
        elif isinstance(effect, Approval) and not self._asks_here(effect):
            return
        if self._listener is not None and not waits:
            self._listener.started(effect)
        flight = Flight(effect, work, deadline, decided)
        self._flights[effect.key] = flight
        if self._free:
            self._free, self._taken = False, flight
        else:
            # Effects are started from within one another's ends: each gets the context of the run, not the last one's.
            flight.task = self.loop.create_task(self._carry(flight), context=self._context.copy())
        self._alarm.set(deadline)

    async def _carry(self, flight: Flight) -> None:
        """Carry out an effect, and then the first one that its end has started, without a task or a wait in between."""
        task = asyncio.current_task()
        assert task is not None
        upcoming: Flight | None = flight
        left = _IN_A_ROW
        while upcoming is not None:
            flight, left = upcoming, left - 1
            flight.begun, flight.task = True, task
            try:
                effect = flight.effect
                if isinstance(effect, ToolRun) and effect.decision.not_before:
                    await self._not_before(effect)
                event = await self._performer.perform(effect, flight.work)
            except asyncio.CancelledError:
                self._cancelled(flight)
                return
            except Later:
                asked = flight.effect
                if isinstance(asked, Approval) and self._flights.get(asked.key) is flight:
                    del self._flights[asked.key]
                    self._put_off(asked)
                return
            except Exception as exc:  # a fault of the driver itself: better told than waited for
                self.inbox.fail(exc)
                return
            # What an effect has set in its context is for nobody else, nor is a cancellation meant for it.
            unmarked = left > 0 and not task.cancelling() and contextvars.copy_context() == self._context
            upcoming = self._ended(flight, event, unmarked)

    def _ended(self, flight: Flight, event: e.AnyEvent, free: bool) -> Flight | None:
        """Report the end of an effect. Gives the one that its task, if it is free, is to carry out next."""
        key = flight.effect.key
        if self._flights.get(key) is not flight:
            return None
        del self._flights[key]
        if isinstance(flight.effect, Approval):
            self._bring(event)
            return None
        self._free = free
        try:
            self.inbox.post(event)
        finally:
            self._free = False
            taken, self._taken = self._taken, None
        return taken if taken is not None and self._flights.get(taken.effect.key) is taken else None

    def _cancelled(self, flight: Flight) -> None:
        if self._flights.get(flight.effect.key) is flight:
            del self._flights[flight.effect.key]
            if not flight.stopped:
                self.interrupt("shutdown")  # not our doing: the event loop is being shut down, and the run with it
            self._report_cut(flight, "cancelled")

    async def _not_before(self, effect: ToolRun) -> None:
        """Wait until a further execution is due; it has its deadline, and can be cancelled, meanwhile."""
        while (left := effect.decision.not_before - self._clock()) > 0:
            await asyncio.sleep(left / 1000)
        if self._listener is not None:
            self._listener.started(effect)

    def _report_cut(self, flight: Flight, status: str) -> None:
        try:
            event = self._cuts.made(flight, status)
        except Exception as exc:  # its content could not be stored
            self.inbox.fail(exc)
        else:
            self.inbox.post(event)

    def _above(self, flight: Flight) -> Cut | None:
        """The wall of a run above, if that is what ends an effect."""
        return None

    def _attempt(self, effect: ModelCall) -> calls.Attempt:
        listener = self._listener
        show = None
        if listener is not None and listener.streams:
            show = partial(self._show, listener, effect)
        return self._performer.attempt(effect, show)

    def _show(self, listener: Listener, effect: ModelCall, piece: str) -> None:
        if effect.key in self._flights:  # an attempt that was given up shows nothing any more
            listener.delta(effect, piece)

    def _note(self, note: Note) -> None:
        self._notes.append(note)
        if self._listener is not None:
            self._listener.noted(note)

    def _abandon(self, flight: Flight) -> None:
        if isinstance(flight.work, executions.Execution):
            flight.work.context.cancelled = True
        task = flight.task
        if task is not None and not task.done():
            self._lingering.add(task)
            task.add_done_callback(self._lingering.discard)
            task.cancel()

    # People.

    def _asks_here(self, effect: Approval) -> bool:
        """Can the approver be asked this? Otherwise nobody can."""
        if self._host.approver is not None and effect.request.kind != "external":
            return True
        self._bring(self._performer.nobody(effect))
        return False

    def _put_off(self, effect: Approval) -> None:
        """The approver does not answer now."""
        self._note(Note("warn", "the approver answers later, but there is no journal", because=effect.because))
        self._bring(self._performer.nobody(effect))

    def _at_rest(self) -> None:
        """The run is about to wait."""

    def _bring(self, event: e.AnyEvent) -> None:
        """A person has answered, or the time is over for which the run has waited."""
        self.inbox.post(event)

    # Time.

    def _rang(self) -> None:
        now = self._clock()
        for flight in [f for f in self._flights.values() if f.deadline <= now]:
            if self._flights.get(flight.effect.key) is flight:  # the end of an earlier one may have ended the run
                del self._flights[flight.effect.key]
                self._abandon(flight)
                self._report_cut(flight, "timed_out")
        if self._until <= now and not self.inbox:
            self._until = NO_TIME
            self._bring(e.Tick(now))
        for flight in self._flights.values():
            self._alarm.set(flight.deadline)
        self._alarm.set(self._until)

    # Resuming.

    def _revive(self) -> None:
        """Start again what was in flight when the process died; what had been asked to end has ended with it."""
        for effect, stopped in self._past.take():
            if not stopped:
                self._launch(effect, None)
            elif isinstance(effect, ToolRun):
                self.inbox.post(self._performer.execution(effect).cut())
            elif isinstance(effect, ModelCall):
                self.inbox.post(self._attempt(effect).failed("aborted", "cancelled"))
