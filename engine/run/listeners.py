"""Who follows a run while it goes on: the protocol, and several of them as one.

Listeners see events with their decisions, effects that start, and text as it arrives. None of them decides
anything, and none of them may take a run down.
"""

from __future__ import annotations

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


def together(listeners: Sequence[Listener]) -> Listener | None:
    """One listener for all of these; ``None`` for none."""
    if len(listeners) < 2:
        return listeners[0] if listeners else None
    return Several(listeners)
