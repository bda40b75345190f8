"""``LocalEffects`` for a run that people can be asked about through the journal: it waits for them, or is left to them.

When nothing is awaited but people, what they are asked is written down. Answers are taken up from there, by whoever
they were given; whether the run waits for them in this process is decided last.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from engine.core import events as e
from engine.core.decisions import AnyDecision, Note
from engine.core.state import State
from engine.core.step import suspended
from engine.run.desk import Desk
from engine.run.effects import Approval
from engine.run.local import LocalEffects
from engine.run.result import OpenRequest
from engine.store.protocol import JournalError

_LOOK_S: Final = 1.0
"""So often is the journal looked at for answers of people while something else keeps the run in this process."""


class SharedEffects(LocalEffects):
    """See the module. ``state`` is the one in which the run begins.

    ``desk`` is where people are asked whom nobody here can ask; ``None``: there is no such place.
    """

    def __init__(self, state: State, desk: Desk | None, *args: Any) -> None:
        super().__init__(*args)
        self._desk = desk
        self._state = state
        self._resumed = bool(self._recorded)
        self.asked: tuple[OpenRequest, ...] = ()
        """What people were asked when the run was left to them."""
        self._parked: dict[str, Approval] = {}
        """What people are asked there, and nobody here."""
        self._written = False
        """Is all that the run waits for written down?"""
        self._shared = self._resumed
        """Was anything ever written down, so that others may answer what the approver here thinks about?"""
        self._looking: asyncio.TimerHandle | None = None

    # What the loop asks for.

    def forget(self, key: str) -> None:
        self._parked.pop(key, None)
        super().forget(key)

    def publish(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        self._state, self._written = state, False
        super().publish(event, decision, state)

    # What the driver asks for.

    @property
    def rests(self) -> bool:
        """Are only people awaited whom nobody asks in this process? All that they are asked is written down."""
        people = self._written and bool(self._parked)
        return people and not self._flights and not self.inbox and self._until > self._clock()

    def look(self) -> None:
        """Somebody may have answered what is written down."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._written:
            self._rest_again()

    def write_down(self) -> None:
        """What people are asked is in the journal, and the run is known to be suspended."""
        if self._desk is not None and not self._written:
            asked = {f.effect.key: f.effect for f in self._flights.values() if isinstance(f.effect, Approval)}
            self._desk.ask(self._state, self._parked | asked)
            self._written = self._shared = True

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().close()

    # Asking.

    def _asks_here(self, effect: Approval) -> bool:
        """Is this asked of the approver? Otherwise through the journal, where it may have been answered before."""
        if self._desk is None:
            return super()._asks_here(effect)
        self._parked[effect.key] = effect
        if self._resumed:
            self._take_up(self._desk)
            if effect.key not in self._parked:
                return False
        if self._host.approver is not None and effect.request.kind != "external":
            del self._parked[effect.key]
            return True
        if self._listener is not None:
            self._listener.started(effect)
        return False

    def _put_off(self, effect: Approval) -> None:
        if self._desk is None:
            super()._put_off(effect)
            return
        self._parked[effect.key] = effect
        self._rest_again()

    # Waiting.

    def _at_rest(self) -> None:
        if (self._parked or self._shared) and self._only_people():
            self._wait_for_people()

    def _rest_again(self) -> None:
        """The same where it waits already: nobody is there to hear of a journal that fails."""
        try:
            self._at_rest()
        except JournalError as exc:
            self.inbox.fail(exc)

    def _only_people(self) -> bool:
        return all(isinstance(f.effect, Approval) for f in self._flights.values()) and suspended(self._state)

    def _wait_for_people(self) -> None:
        desk = self._desk
        if desk is None:
            return
        self.write_down()
        self._take_up(desk)
        if self.rests:
            self.loop.call_soon(self._leave)
        if self._written and self._looking is None:
            self._looking = self.loop.call_later(_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._looking = None
        self.look()

    def _leave(self) -> None:
        """Nobody needs to wait for people in this process, unless the time of all that they are asked has just run out.

        Then that is the answer, and the timer brings it.
        """
        if self._desk is None or not self.rests:
            return
        try:
            self.asked = self._desk.open()
        except JournalError as exc:
            self.inbox.fail(exc)
            return
        if self.asked:
            self.inbox.leave()

    def _take_up(self, desk: Desk) -> None:
        """What people have answered through the journal reaches the run."""
        answers = []
        for key, record in desk.answered().items():
            effect = self._parked.pop(key, None)
            flight = self._flights.get(key) if effect is None else None
            if flight is not None and isinstance(flight.effect, Approval):
                effect = flight.effect
                del self._flights[key]
                self._abandon(flight)
            if effect is None:
                continue
            event, problem = desk.take(record, effect, self._clock(), self.put, self._performer.prepared)
            if problem:
                self._note(Note("warn", problem, because=effect.because))
            answers.append(event)
        for event in answers:
            self._bring(event)
