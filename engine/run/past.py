"""What the journal holds of a run that goes on: its events, which come first, and what was in flight behind them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from engine.core.decisions import AnyDecision, digest
from engine.core.events import AnyEvent
from engine.run.effects import Effect, ProtocolError, settles

Recorded = tuple[AnyEvent, str]
"""An event as it was journaled, and the digest of the decision it got."""


class Past:
    """See the module. ``ahead`` are the events that have not been decided again yet, in their order."""

    def __init__(self, run: str, recorded: Iterable[Recorded]) -> None:
        self._run = run
        self.ahead = deque(recorded)
        self.dead: dict[str, Effect] = {}
        """Effects of the journal that have no end in it, by their keys."""
        self._stopped: set[str] = set()

    def happened(self, event: AnyEvent) -> AnyEvent:
        """This event of the journal is the next one: what it ends is not in flight any more."""
        self.dead.pop(settles(event), None)
        return event

    def stop(self, key: str) -> None:
        """An effect was asked to end."""
        if key in self.dead:
            self._stopped.add(key)

    def decided(self, event: AnyEvent, decision: AnyDecision) -> None:
        """An event of the journal has been decided again.

        Raises:
            ProtocolError: it is another event than the journal's next, or another decision than it got then.
        """
        then, digested = self.ahead.popleft()
        if then != event:
            raise ProtocolError(f"run {self._run}: its journal says {then!r}, where it now would say {event!r}")
        if digested and digested != digest(decision):
            raise ProtocolError(
                f"run {self._run}: the journaled decision on {then!r} is another one than the one taken now"
            )

    def take(self) -> list[tuple[Effect, bool]]:
        """What was in flight when the process died, once: with each effect, had it been asked to end?"""
        dead, self.dead = self.dead, {}
        return [(effect, key in self._stopped) for key, effect in dead.items()]
