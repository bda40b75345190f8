"""Who follows a run while it goes on: the protocol, and several of them as one.

Listeners see events with their decisions, effects that start, and text as it arrives. None of them decides
anything, and none of them may take a run down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from engine.core.decisions import AnyDecision, Note
from engine.core.events import AnyEvent
from engine.core.messages import Message
from engine.core.state import State
from engine.core.step import Compiled
from engine.run.effects import Effect, ModelCall, RunSpec
from engine.run.host import Host


class Listener(Protocol):
    """Who follows a run while it goes on."""

    streams: bool
    """Does it want to see text as it arrives?"""

    def replayed(self, event: AnyEvent, state: State) -> None:
        """An event of the journal of a run that is being resumed."""

    def decided(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        """An event and the decision on it; ``state`` is the one after it."""

    def started(self, effect: Effect) -> None:
        """An effect begins."""

    def delta(self, effect: ModelCall, text: str) -> None:
        """A piece of text has arrived."""

    def noted(self, note: Note) -> None:
        """Something worth telling that no decision has noted."""

    def over(self) -> None:
        """Nothing more will be heard: the run has ended, or it does not go on in this process."""


class Observer(Protocol):
    """Who follows all runs of a driver."""

    def of_run(self, compiled: Compiled, spec: RunSpec, host: Host, get: Callable[[str], Message]) -> Listener:
        """The listener for one run that begins or goes on. ``get`` gives the content of a reference."""
        ...


class Quiet:
    """A listener that hears nothing: the base of those that want only some of it."""

    streams = False

    def replayed(self, event: AnyEvent, state: State) -> None:
        pass

    def decided(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        pass

    def started(self, effect: Effect) -> None:
        pass

    def delta(self, effect: ModelCall, text: str) -> None:
        pass

    def noted(self, note: Note) -> None:
        pass

    def over(self) -> None:
        pass


class Several:
    """Listeners as one, told in order."""

    def __init__(self, each: Sequence[Listener]) -> None:
        self._each = each
        self.streams = any(listener.streams for listener in each)

    def replayed(self, event: AnyEvent, state: State) -> None:
        for listener in self._each:
            listener.replayed(event, state)

    def decided(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        for listener in self._each:
            listener.decided(event, decision, state)

    def started(self, effect: Effect) -> None:
        for listener in self._each:
            listener.started(effect)

    def delta(self, effect: ModelCall, text: str) -> None:
        for listener in self._each:
            if listener.streams:
                listener.delta(effect, text)

    def noted(self, note: Note) -> None:
        for listener in self._each:
            listener.noted(note)

    def over(self) -> None:
        for listener in self._each:
            listener.over()


class Guarded:
    """A listener whose faults are told once, in a log, and after that hears nothing more."""

    def __init__(self, listener: Listener, log: logging.Logger) -> None:
        self._listener: Listener = listener
        self._log = log
        self.streams = listener.streams

    def _safely(self, tell: Callable[[Listener], None]) -> None:
        try:
            tell(self._listener)
        except Exception as exc:
            self._listener = Quiet()
            self._log.warning("a listener of runs failed and is left out: %s: %s", type(exc).__name__, exc)

    def replayed(self, event: AnyEvent, state: State) -> None:
        self._safely(lambda listener: listener.replayed(event, state))

    def decided(self, event: AnyEvent, decision: AnyDecision, state: State) -> None:
        self._safely(lambda listener: listener.decided(event, decision, state))

    def started(self, effect: Effect) -> None:
        self._safely(lambda listener: listener.started(effect))

    def delta(self, effect: ModelCall, text: str) -> None:
        self._safely(lambda listener: listener.delta(effect, text))

    def noted(self, note: Note) -> None:
        self._safely(lambda listener: listener.noted(note))

    def over(self) -> None:
        self._safely(lambda listener: listener.over())


def together(listeners: Sequence[Listener]) -> Listener | None:
    """One listener for all of these; ``None`` for none."""
    if len(listeners) < 2:
        return listeners[0] if listeners else None
    return Several(listeners)
