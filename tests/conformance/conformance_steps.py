"""The bare ``step``, event by event, for cases about a counter or an inner function."""

from __future__ import annotations

from typing import Any

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.state import ClientInfo, State, Used, decode_state, encode_state
from engine.core.step import compile, wake_at


class Steps:
    """A run under a policy, decided one event at a time. ``thread_used``: what the thread's earlier runs used."""

    def __init__(self, policy: Policy, *, thread_used: Used | None = None, parent: str | None = None) -> None:
        self.compiled = compile(policy)
        self.state = self.compiled.initial
        self.now = 0
        self._calls = 0
        self._rounds = 0
        self.started = self.send(
            e.RunStarted(0, "run", thread="thread" if thread_used else None, parent=parent, thread_used=thread_used)
        )

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        self.state, decision = self.compiled.step(self.state, event)
        assert not isinstance(decision, d.Illegal), decision.problem
        return decision

    def look(self, event: e.AnyEvent) -> d.AnyDecision:
        """What would be decided; the run does not move."""
        return self.compiled.step(self.state, event)[1]

    @property
    def used(self) -> Used:
        return self.compiled.used(self.state)

    @property
    def wake_at(self) -> int:
        return wake_at(self.state)

    def next_call(self) -> e.CallRequested:
        return e.CallRequested(self.now, str(self._calls + 1), client="primary")

    def call(self) -> d.AnyDecision:
        """Ask for the next call."""
        decision = self.send(self.next_call())
        self._calls += 1
        return decision

    def replied(self, *names: str, text: bool = False, unknown: tuple[str, ...] = (), **more: Any) -> d.AnyDecision:
        """The call in hand is answered: with calls of these tools, or with text."""
        self._rounds += bool(names)
        calls = tuple(
            e.Proposed(f"{self._rounds}.{i}", name, registered=name not in unknown) for i, name in enumerate(names)
        )
        usage = more.pop("usage", Usage(input=1, output=1))
        return self.send(
            e.ModelReplied(self.now, str(self._calls), text=text or not names, calls=calls, usage=usage, **more)
        )

    def ended(self, position: int = 0, **more: Any) -> d.AnyDecision:
        """A tool of the round in hand starts and ends."""
        id = f"{self._rounds}.{position}"
        started = self.send(e.ToolRequested(self.now, id))
        assert isinstance(started, d.Execute), started
        return self.send(e.ToolEnded(self.now, id, **more))

    def round(self) -> d.AnyDecision:
        """A reply that asks for one tool, and its end if it is run."""
        decision = self.replied("tool")
        if isinstance(decision, d.RunTools):
            self.ended()
        return decision


class Failing(Steps):
    """Steps of a host with several clients."""

    def __init__(self, policy: Policy, *clients: str) -> None:
        self.clients = tuple(ClientInfo(name) for name in clients)
        super().__init__(policy)

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        if isinstance(event, e.RunStarted):
            event = e.RunStarted(event.at, event.run, clients=self.clients)
        return super().send(event)

    def failed(self, reason: str = "provider", attempt: int = 1, **more: Any) -> d.AnyDecision:
        return self.send(e.ModelFailed(self.now, str(self._calls), attempt, reason, usage=Usage(1, 0), **more))


def restored(steps: Steps) -> State:
    """The state as another process would read it."""
    return decode_state(encode_state(steps.state))
