"""The loop that drives a run, written once for every environment.

It sends ``step`` what happens and obeys what ``step`` decides. It decides nothing by itself, knows no
clock (time is what the last event said), no task, no network and no journal: all that is ``Effects``.
Given the same events in the same order it does the same, so a run is resumed by going through its
journal once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import ToolCall
from engine.core.state import Outcome, State
from engine.core.step import Step, wake_at
from engine.core.transcript import Transcript, messages
from engine.run.effects import (
    Approval,
    Effects,
    Finished,
    ModelCall,
    Moved,
    Position,
    ProtocolError,
    ResolverRun,
    RunSpec,
    Suspended,
    ToolRun,
    approval_key,
    extension_key,
    model_key,
    resolver_key,
    tool_key,
)
from engine.run.sizes import characters, tokens


async def drive(
    spec: RunSpec, step: Step, state: State, effects: Effects, position: Position | None = None
) -> Finished | Suspended | Moved:
    """Drive a run to its end (or until the environment wants a fresh execution, or does not wait for people).

    ``step`` is that of the spec's policy, ``state`` its initial one, or what a ``Moved`` carried together with
    ``position``.

    Raises:
        ProtocolError: the core called an event illegal: this loop or its environment has a fault.
    """
    turn = _Turn(spec, effects, position)
    publish, follow = effects.publish, turn.follow
    show = effects.show if spec.node else None
    event = turn.opening(position)
    while True:
        if show is not None and (seen := show(event, state)) is not None:
            state, decision = step(state, seen)
            publish(seen, decision, state)
        state, decision = step(state, event)
        publish(event, decision, state)
        upcoming = follow(event, decision)
        if upcoming is None:
            if turn.outcome is not None:
                return Finished(turn.outcome, state, turn.transcript)
            happened = await effects.next(turn.until(wake_at(state)))
            if happened is None:
                return Suspended(state, turn.transcript)
            upcoming = turn.arrived(happened)
        elif isinstance(upcoming, e.CallRequested) and effects.should_continue_as_new():
            return Moved(state, turn.position(upcoming.at))
        event = upcoming


def withdrawn(spec: RunSpec, step: Step, state: State, effects: Effects, cause: str) -> Finished:
    """The run of a child that is not wanted any more before it has begun: it begins, and ends at once."""
    turn = _Turn(spec, effects, None)
    first = turn.opening(None)
    for event in (first, e.Cancelled(at=first.at, cause=cause)):
        state, decision = step(state, event)
        effects.publish(event, decision, state)
        turn.transcript = turn.transcript.apply(event, decision)
        if isinstance(decision, d.End):
            return Finished(decision.outcome, state, turn.transcript)
    raise ProtocolError(f"run {spec.run} did not end when it was withdrawn")


class _Turn:
    """What the loop remembers between two decisions: the conversation, what still has to be asked, what is awaited."""

    def __init__(self, spec: RunSpec, effects: Effects, position: Position | None) -> None:
        self.spec = spec
        self.effects = effects
        self.transcript = Transcript()
        self.calls = 0
        self.rounds = 0
        self.outcome: Outcome | None = None
        self.open: dict[str, ToolCall] = {}
        """The function calls of the last reply, by the ids that events use."""
        self.to_request: deque[str] = deque()
        self.asked: dict[str, str] = {}
        """Tool calls that people are asked about or have to execute, with the keys of their questions."""
        self.question = ""
        """Key of the question about a limit that is open."""
        self.stopping = False
        self.failed: e.ModelFailed | None = None
        """The failure of the last attempt, if it failed."""
        self.retry: d.Retry | None = None
        self.awaited = ""
        """Key of the model attempt or resolver that was started last."""
        self._sized = 0
        self._size = spec.overhead or 0
        if position is not None:
            self.calls, self.rounds = position.calls, position.rounds
            said = e.RunStarted(at=position.at, run=spec.run, refs=position.messages)
            self.transcript = self.transcript.apply(said, d.Continue())

    # Which event comes next.

    def opening(self, position: Position | None) -> e.AnyEvent:
        """The first event: a run begins, or goes on with a call."""
        spec = self.spec
        if position is not None:
            return self._request(position.at)
        return e.RunStarted(
            at=spec.started,
            run=spec.run,
            thread=spec.thread,
            parent=spec.parent,
            fingerprint=spec.fingerprint,
            thread_used=spec.thread_used,
            clients=spec.clients,
            refs=spec.messages,
            node="" if spec.node == spec.run else spec.node,
        )

    def position(self, at: int) -> Position:
        """Where the loop stands, just before it would ask for the call it has named last."""
        put = self.effects.put
        said = tuple(put(message) for message in messages(self.transcript.entries(), self.effects.get))
        return Position(at, self.calls - 1, self.rounds, said)

    def until(self, wake: int) -> int:
        return min(wake, self.retry.not_before) if self.retry is not None else wake

    def arrived(self, event: e.AnyEvent) -> e.AnyEvent:
        """A timer that rings when a retry is due means that retry."""
        retry = self.retry
        if retry is not None and isinstance(event, e.Tick) and event.at >= retry.not_before:
            return e.RetryDue(at=event.at, call=retry.call)
        return event

    def follow(self, event: e.AnyEvent, decision: d.AnyDecision) -> e.AnyEvent | None:
        """Obey a decision. What the loop itself reports next, ``None`` to wait for the world."""
        self.transcript = self.transcript.apply(event, decision)
        if self.question and decision.__class__ is not d.Wait:
            self.effects.forget(self.question)
            self.question = ""
        heard = _HEAR.get(event.__class__)
        if heard is not None:
            heard(self, event)
        return _OBEY[decision.__class__](self, event.at, decision)

    def _replied(self, reply: e.ModelReplied) -> None:
        self.failed = None
        if not reply.calls:
            return
        calls = self.effects.get(reply.ref).tool_calls
        functions = {p.id: calls[i] for i, p in enumerate(reply.calls) if p.kind in e.AWAITED}
        if functions:
            self.rounds += 1
            self.open = functions

    def _failed(self, event: e.ModelFailed) -> None:
        self.failed = event

    def _tool_ended(self, event: e.ToolEnded) -> None:
        if event.status != "deferred":
            self.asked.pop(event.id, None)
        elif event.id in self.open and event.id not in self.asked and not self.stopping:
            self._ask(tool_key(event.id), d.Request(event.id, "external"), "default: deferred")

    def _ask(self, key: str, request: d.Request, because: str) -> None:
        """Ask people about a tool call, or wait for what they bring."""
        call = self.open[request.id]
        self.asked[request.id] = key
        self.effects.start(Approval(key, structs.replace(request, tool=call.name), because, call))

    def _answered(self, answer: e.ApprovalGiven) -> None:
        self.asked.pop(answer.id, None)
        if answer.ref:
            edited = self.effects.get(answer.ref).text
            self.open[answer.id] = structs.replace(self.open[answer.id], arguments=edited)

    def _not_asked(self, ids: Iterable[str]) -> None:
        """Nobody needs to answer about these any more: their time is over, or the run's."""
        for id in list(ids):
            if (key := self.asked.pop(id, None)) is not None:
                self.effects.forget(key)

    def _request(self, at: int) -> e.CallRequested:
        self.calls += 1
        spec = self.spec
        refs = self.effects.posted() if spec.node else ()
        model = spec.model
        for first, other in spec.models:
            model = other if self.calls >= first else model
        return e.CallRequested(
            at=at,
            call=str(self.calls),
            client=spec.client,
            model=model,
            input_tokens=None if spec.overhead is None else self._input_tokens(refs),
            max_output=spec.max_output,
            refs=refs,
        )

    def _input_tokens(self, more: tuple[str, ...]) -> int:
        """The size of the next request; ``more`` are messages that join it."""
        get = self.effects.get
        for entry in self.transcript.entries(self._sized):
            self._size += characters(get(entry.ref)) if entry.ref else len(entry.text)
        self._sized = len(self.transcript)
        return tokens(self._size + sum(characters(get(ref)) for ref in more))

    def _next_tool(self, at: int) -> e.AnyEvent | None:
        if not self.to_request:
            return None
        id = self.to_request.popleft()
        return e.ToolRequested(at=at, id=id, name=self.open[id].name)

    # One method a decision.

    def _continue(self, at: int, decision: d.Continue) -> e.AnyEvent | None:
        return self._request(at)

    def _wait(self, at: int, decision: d.Wait | d.Spawn | d.Queue | d.Refuse) -> e.AnyEvent | None:
        return self._next_tool(at)

    def _call(self, at: int, decision: d.Call) -> e.AnyEvent | None:
        self.retry = None
        if decision.call.isdecimal():
            # A fallback's call is named by the core; the next of our own must not repeat its name.
            self.calls = max(self.calls, int(decision.call))
        self.awaited = model_key(decision.call, decision.attempt)
        idempotency = f"{self.spec.run}:{decision.n}"
        self.effects.start(ModelCall(self.awaited, decision, self.transcript, self.rounds + 1, idempotency))
        return None

    def _retry(self, at: int, decision: d.Retry) -> e.AnyEvent | None:
        self.retry = decision
        return None

    def _run_tools(self, at: int, decision: d.RunTools) -> e.AnyEvent | None:
        if self.asked:
            self._not_asked(v.id for v in decision.verdicts if isinstance(v, d.Reply))
        if decision.complete:
            return self._request(at)
        for verdict in decision.verdicts:
            if isinstance(verdict, d.Execute):
                self.to_request.append(verdict.id)
            elif isinstance(verdict, d.Ask):
                key = tool_key(verdict.id) if verdict.external else approval_key(verdict.id)
                kind: Literal["tool", "external"] = "external" if verdict.external else "tool"
                self._ask(key, d.Request(verdict.id, kind, until=verdict.until), verdict.because)
        return self._next_tool(at)

    def _execute(self, at: int, decision: d.Execute) -> e.AnyEvent | None:
        idempotency = f"{self.spec.run}:{decision.id}"
        self.effects.start(ToolRun(tool_key(decision.id), decision, self.open[decision.id], idempotency))
        return self._next_tool(at)

    def _refused(self, at: int, decision: d.Reply) -> e.AnyEvent | None:
        if self.to_request or self.transcript.open:
            return self._next_tool(at)
        return self._request(at)

    def _suspend(self, at: int, decision: d.Suspend) -> e.AnyEvent | None:
        """Tool calls have been asked about when they were judged; about a limit somebody is asked now."""
        for request in decision.requests:
            if request.kind == "extension":
                self.question = extension_key(request.id)
                self.effects.start(Approval(self.question, request, decision.because))
        return None

    def _resolve(self, at: int, decision: d.Resolve) -> e.AnyEvent | None:
        self.awaited = resolver_key(decision.name)
        self.effects.start(ResolverRun(self.awaited, decision, self.transcript, self.failed))
        return None

    def _stop(self, at: int, decision: d.Stop) -> e.AnyEvent | None:
        self.stopping = True
        self.to_request.clear()
        self.retry = None
        self._not_asked(self.asked)
        # A resolver has no entry of its own in the decision: it is awaited exactly when no tool and no model is.
        self.effects.cancel([self.awaited, *(tool_key(id) for id in decision.cancel)])
        return None

    def _end(self, at: int, decision: d.End) -> e.AnyEvent | None:
        self.outcome = decision.outcome
        self._not_asked(self.asked)
        return None

    def _illegal(self, at: int, decision: d.Illegal) -> e.AnyEvent | None:
        raise ProtocolError(f"run {self.spec.run}: {decision.problem}")


_HEAR: dict[type, Callable[[_Turn, Any], None]] = {
    e.ModelReplied: _Turn._replied,
    e.ModelFailed: _Turn._failed,
    e.ToolEnded: _Turn._tool_ended,
    e.ApprovalGiven: _Turn._answered,
}

_OBEY: dict[type, Callable[[_Turn, int, Any], e.AnyEvent | None]] = {
    d.Continue: _Turn._continue,
    d.Wait: _Turn._wait,
    d.Call: _Turn._call,
    d.Retry: _Turn._retry,
    d.RunTools: _Turn._run_tools,
    d.Execute: _Turn._execute,
    d.Reply: _Turn._refused,
    d.Suspend: _Turn._suspend,
    d.Resolve: _Turn._resolve,
    d.Spawn: _Turn._wait,
    d.Queue: _Turn._wait,
    d.Refuse: _Turn._wait,
    d.Stop: _Turn._stop,
    d.End: _Turn._end,
    d.Illegal: _Turn._illegal,
}
