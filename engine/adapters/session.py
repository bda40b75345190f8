"""A run in somebody else's loop. The loop comes with what it wants to do, and is told what to do instead.

``call`` and ``tool`` are generators, so that one text serves synchronous hooks, asynchronous ones and threads: each act
they yield is carried out by the framework's module, which sends back what came of it. They end with what the loop
gets. ``step`` decides everything; the conversation stays with the loop. Steps of one run come one after the other,
whatever thread they come from.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import structs

from engine.adapters.acts import Advice, Answer, Consult, Failed, Kind, Ran, Replied, Result, Run, Send, Sleep, Wanted
from engine.core import decisions as d
from engine.core import events as e
from engine.core.canonical import arguments_key
from engine.core.host import FULL
from engine.core.messages import ToolCall, Usage
from engine.core.outcome import Outcome
from engine.core.state import ENDED, REPLIED, ClientInfo, State, Used
from engine.core.step import Compiled
from engine.core.texts import quantity
from engine.core.transcript import Transcript
from engine.core.vocabulary import REASONS, REFUSALS, RESOURCES
from engine.run import sizes
from engine.run.booking import Account
from engine.run.effects import Effect, ModelCall, ProtocolError, ToolRun, model_key, tool_key
from engine.run.jitter import unit
from engine.run.listeners import Listener
from engine.run.timers import Clock, system_clock

Act = Send | Sleep | Consult | Run


class Session:
    """See the module. ``profile`` are the host's abilities, ``clients`` those it can route to by name.

    ``listener`` is told of every decision. ``thread_used``: what the thread's earlier runs have used. ``account``: the
    run's own with a ledger, where it shares limits with others.
    """

    def __init__(
        self,
        compiled: Compiled,
        run: str,
        *,
        profile: Iterable[str] = FULL,
        thread: str | None = None,
        thread_used: Used | None = None,
        clients: Iterable[ClientInfo] = (),
        clock: Clock = system_clock,
        listener: Listener | None = None,
        account: Account | None = None,
    ) -> None:
        self.run = run
        self.thread = thread
        self.outcome: Outcome | None = None
        self.state: State = compiled.initial
        self._compiled = compiled
        self._profile = tuple(profile)
        self._clock = clock
        self._listener = listener
        self._account = account
        self._lock = threading.RLock()
        self._start = e.RunStarted(
            clock(),
            run,
            thread=thread,
            fingerprint=compiled.fingerprint,
            profile=self._profile,
            thread_used=thread_used,
            clients=tuple(clients),
        )
        self._begun = False
        self._calls = 0
        self._in_hand = ""
        """The call that is going on. A loop that was left in its midst and asks again makes a further attempt of it."""
        self._rounds = 0
        self._text = ""
        """The last text that was said: what an ended run shows."""
        self._advised = ""
        self._ids: dict[str, str] = {}
        """Ids of the tool calls of the last reply, by the provider's."""
        self._verdicts: dict[str, d.Execute | d.Ask | d.Reply] = {}
        """The verdicts on them, by our ids."""
        self._failure: Failed | None = None
        self._asked = Wanted("")

    @property
    def used(self) -> Used:
        """What the run has used so far."""
        return self._compiled.used(self.state)

    # A model is to be called.

    def call(self, wanted: Wanted, answered: Iterable[str] = ()) -> Generator[Send | Sleep | Consult, Any, Answer]:
        """Make a call, with all its attempts, fallbacks and, where a limit is hit, the final call in its place.

        ``answered`` are tool calls (by the provider's ids) that the loop has answered without a word to us.
        """
        decision = self._wanted(wanted, tuple(answered))
        reply: Replied | None = None
        while True:
            if isinstance(decision, d.Call):
                self._in_hand = decision.call
                self._tell(ModelCall(model_key(decision.call, decision.attempt), decision, Transcript(), 0, ""))
                came = yield Send(self._worded(decision))
                reply = came if isinstance(came, Replied) else None
                decision = self._came(decision, came)
            elif isinstance(decision, d.Retry):
                yield Sleep(decision.not_before)
                decision = self._step(e.RetryDue(max(self._clock(), decision.not_before), decision.call))
            elif isinstance(decision, d.Resolve):
                advice: Advice = yield Consult(decision, self._failure)
                self._text = self._advised = advice.text or self._text
                ref = f"advice:{decision.n}" if advice.text else ""
                decision = self._step(e.Resolved(self._clock(), decision.name, advice.status, ref, advice.step))
            elif isinstance(decision, d.Continue):  # the reply was none: another call in its place
                self._in_hand = ""
                decision = self._step(self._requested(wanted))
            elif isinstance(decision, d.Suspend):
                decision = self._not_grown(decision)
            elif isinstance(decision, d.RunTools):
                return self._round(reply, decision)
            elif isinstance(decision, d.End):
                return self._over(reply)
            else:
                raise ProtocolError(f"run {self.run}: a call cannot go on from {type(decision).__name__}")

    def _not_grown(self, asked: d.Suspend) -> d.AnyDecision:
        """A limit asks whether it may grow: in the midst of a loop's call there is nobody who could say so."""
        decision: d.AnyDecision = asked
        for request in asked.requests:
            if request.kind == "extension":
                decision = self._step(e.ExtensionAnswered(self._clock(), request.id, "nobody"))
        if isinstance(decision, d.Suspend) and decision.requests == asked.requests:
            raise ProtocolError(f"run {self.run}: a call cannot wait for people")
        return decision

    def _worded(self, call: d.Call) -> d.Call:
        """The call with what the host's function has told to say, in words."""
        return structs.replace(call, instruction=self._advised) if call.instruction_ref else call

    def _wanted(self, wanted: Wanted, answered: tuple[str, ...]) -> d.AnyDecision:
        with self._lock:
            self._asked = wanted
            if self.outcome is not None:
                return d.End(0, self.outcome)
            if not self._begun:
                self._begun = True
                decision = self._step(self._start)
                if not isinstance(decision, d.Continue):
                    return decision
            return self._step(self._requested(wanted, answered))

    def _requested(self, wanted: Wanted, answered: tuple[str, ...] = ()) -> e.CallRequested:
        if not self._in_hand:
            self._calls += 1
            self._in_hand = str(self._calls)
        return e.CallRequested(
            self._clock(),
            self._in_hand,
            wanted.client,
            wanted.model,
            wanted.input_tokens,
            wanted.max_output,
            tuple(self._ids.get(id, id) for id in answered),
        )

    def _came(self, call: d.Call, came: Replied | Failed) -> d.AnyDecision:
        if call.call.isdecimal():  # a fallback's call is named by the core
            self._calls = max(self._calls, int(call.call))
        if isinstance(came, Failed):
            self._failure, self._text = came, came.text or self._text
            return self._step(self._failed(call, came))
        self._failure = None
        return self._step(self._replied(call, came))

    def _failed(self, call: d.Call, came: Failed) -> e.ModelFailed:
        return e.ModelFailed(
            at=self._clock(),
            call=call.call,
            attempt=call.attempt,
            reason=came.reason if came.reason in REASONS else "unknown",
            retry_after=came.retry_after,
            jitter=unit(self.run, call.n),
            partial="delivered" if came.delivered and came.text else "held" if came.text else "none",
            usage=came.usage,
        )

    def _replied(self, call: d.Call, came: Replied) -> e.ModelReplied:
        message, usage = came.reply.message, came.reply.usage
        said = bool(message.text.strip())
        if said:
            self._text = message.text
        calls = tuple(self._proposed(i, each, came) for i, each in enumerate(message.tool_calls))
        self._ids = {each.id: ours.id for each, ours in zip(message.tool_calls, calls, strict=True)}
        self._verdicts = {}
        if any(each.kind in e.AWAITED for each in calls):
            self._rounds += 1
        estimated = usage is None
        if usage is None:
            usage = Usage(self._asked.input_tokens or 0, sizes.tokens(sizes.characters(message)))
        return e.ModelReplied(
            at=self._clock(),
            call=call.call,
            attempt=call.attempt,
            finish=came.reply.finish,
            text=said,
            calls=calls,
            usage=usage,
            estimated=estimated,
        )

    def _proposed(self, position: int, call: ToolCall, came: Replied) -> e.Proposed:
        key, id = arguments_key(call.arguments), f"{self._rounds + 1}.{position}"
        kind: Kind = came.kinds.get(call.id, call.kind)
        if kind != "function":
            return e.Proposed(id, call.name, key, kind=kind)
        registered = call.id not in came.unregistered
        return e.Proposed(id, call.name, key, registered=registered, problem=came.problems.get(call.id, ""))

    def _round(self, reply: Replied | None, decision: d.RunTools) -> Answer:
        assert reply is not None
        self._in_hand = ""
        self._verdicts = {verdict.id: verdict for verdict in decision.verdicts}
        found = ((id, self._verdicts.get(ours)) for id, ours in self._ids.items())
        return Answer(reply.reply, {id: verdict for id, verdict in found if verdict is not None})

    def _over(self, reply: Replied | None) -> Answer:
        outcome = self.outcome
        assert outcome is not None
        answered = reply.reply if reply is not None and outcome.status in ("completed", "finalized") else None
        return Answer(answered, {}, outcome, self.shown)

    @property
    def shown(self) -> str:
        """What is to be shown of a run that has ended: its answer, or why there is none."""
        outcome = self.outcome
        if outcome is None:
            return ""
        return (
            self._text if outcome.status in ("completed", "finalized") and self._text else stopped(outcome, self._text)
        )

    # A tool is to be run.

    def tool(
        self, id: str, name: str, arguments: str, *, registered: bool = True
    ) -> Generator[Run | Sleep, Ran, Result]:
        """Run a tool that a model has asked for, with its further executions; ``id`` is the provider's."""
        ours = self._ids.setdefault(id, id)
        verdict = self._verdicts.get(ours)
        if isinstance(verdict, d.Reply):
            return Result(refused=verdict.text)
        if isinstance(verdict, d.Ask):
            return Result(asked=verdict)
        decision = self._step(e.ToolRequested(self._clock(), ours, name, arguments_key(arguments), registered))
        ran: Ran | None = None
        while isinstance(decision, d.Execute):
            if decision.not_before:
                yield Sleep(decision.not_before)
            idempotency = f"{self.run}:{ours}"
            self._tell(ToolRun(tool_key(ours), decision, ToolCall(ours, name, arguments), idempotency))
            ran = yield Run(decision, idempotency)
            decision = self._ended(ours, decision.attempt, ran)
        if isinstance(decision, d.Reply):
            return Result(refused=decision.text)
        if isinstance(decision, d.Ask):
            return Result(asked=decision)
        if ran is None:  # the run is at its end: nothing starts any more
            return Result(refused=self._closed(ours, decision))
        return Result(ran)

    def _ended(self, id: str, attempt: int, ran: Ran) -> d.AnyDecision:
        if ran.ends == "answer":
            self._text = ran.text
        return self._step(
            e.ToolEnded(
                self._clock(),
                id,
                attempt,
                ran.status,
                sha256(ran.text.encode("utf-8", "replace")).hexdigest(),
                ran.usage,
                ran.ends,
                jitter=unit(self.run, f"{id}.{attempt}"),
            )
        )

    def _closed(self, id: str, decision: d.AnyDecision) -> str:
        closed = decision.close if isinstance(decision, d.Stop | d.End) else ()
        return next((reply.text for reply in closed if reply.id == id), REFUSALS["stopped"])

    def answer(self, id: str, granted: bool | None, arguments: str | None = None) -> None:
        """A person has answered whether a tool call (by the provider's id) may run, maybe with other arguments.
        ``None``: nobody can be asked."""
        ours = self._ids.get(id, id)
        key = None if arguments is None else arguments_key(arguments)
        verdict: Any = "nobody" if granted is None else "granted" if granted else "refused"
        decision = self._step(e.ApprovalGiven(self._clock(), ours, verdict, key))
        if isinstance(decision, d.RunTools):
            self._verdicts |= {verdict.id: verdict for verdict in decision.verdicts}

    def verdict(self, id: str) -> d.Execute | d.Ask | d.Reply | None:
        """The verdict on a tool call (by the provider's id), when people have answered."""
        return self._verdicts.get(self._ids.get(id, id))

    def brought(self, id: str, ran: Ran) -> None:
        """What has come of a tool call (by the provider's id) that is carried out elsewhere: external, or deferred."""
        self._ended(self._ids.get(id, id), 0, ran)

    def knows(self, id: str) -> bool:
        """Has the last reply had a tool call with this id of the provider's?"""
        return id in self._ids

    # The end.

    def cancel(self, cause: str = "user") -> Outcome:
        """The loop is left: whatever is in flight is given up, and the run has ended."""
        with self._lock:
            if self.outcome is None and not self._begun:
                self._begun = True
                self._step(self._start)
            if self.outcome is None:
                decision = self._step(e.Cancelled(self._clock(), cause))
                if isinstance(decision, d.Stop):
                    self._step(e.Tick(max(self._clock(), decision.until)))
            assert self.outcome is not None
            return self.outcome

    def report(self, usage: Usage) -> None:
        """What the attempt in hand has used so far, or will have when its end is not told: the loop is being left."""
        call = self.state.call
        if call is not None and self._in_hand == call.id:
            self._step(e.UsageReported(self._clock(), call.id, call.attempt, usage))

    @property
    def open(self) -> tuple[str, ...]:
        """Tool calls that have no result yet, by the provider's ids; our own where those are not known."""
        theirs = {ours: id for id, ours in self._ids.items()}
        return tuple(theirs.get(c.id, c.id) for c in self.state.round if c.status not in (ENDED, REPLIED))

    # Gone on with, from a journal.

    def replay(self, events: Iterable[e.AnyEvent], ids: Mapping[str, str]) -> None:
        """What an earlier process has come to with these events; ``ids`` are those of the last reply's calls, by the
        provider's. Nobody is told of them again.

        Raises:
            ProtocolError: no run has had these events under this policy.
        """
        listener, self._listener = self._listener, None
        account, self._account = self._account, None
        try:
            for event in events:
                self._begun = True
                if isinstance(event, e.ModelReplied):
                    self._rounds += any(each.kind in e.AWAITED for each in event.calls)
                decision = self._step(event, shown=True)
                if isinstance(decision, d.Call):
                    self._in_hand = decision.call
                    self._calls = max(self._calls, int(decision.call) if decision.call.isdecimal() else 0)
                elif isinstance(decision, d.RunTools):
                    self._in_hand = ""
                    kept = {} if isinstance(event, e.ModelReplied) else self._verdicts
                    self._verdicts = kept | {verdict.id: verdict for verdict in decision.verdicts}
                elif isinstance(decision, d.Continue):
                    self._in_hand = ""
        finally:
            self._listener, self._account = listener, account
        self._ids = dict(ids)
        if account is not None:
            account.used = self.used

    # Inside.

    def _tell(self, effect: Effect) -> None:
        if self._listener is not None:
            self._listener.started(effect)

    def _step(self, event: e.AnyEvent, *, shown: bool = False) -> d.AnyDecision:
        """``shown``: what the ledger had to show is among the events already."""
        with self._lock:
            if self.outcome is not None:
                return d.End(0, self.outcome)
            account = self._account
            seen = account.show(event, self.state) if account is not None and not shown else None
            if seen is not None:
                self._step(seen, shown=True)
            self.state, decision = self._compiled.step(self.state, event)
            if isinstance(decision, d.Illegal):
                raise ProtocolError(f"run {self.run}: {decision.problem}")
            if account is not None:
                account.book(event, decision, self.state)
            if self._listener is not None:
                self._listener.decided(event, decision, self.state)
            if isinstance(decision, d.End):
                self.outcome = decision.outcome
            return decision


def stopped(outcome: Outcome, said: str = "") -> str:
    """What is shown where there is no answer: why, and what had been said so far."""
    limit, why = outcome.limit, outcome.error or outcome.reason
    if limit is not None:
        known = RESOURCES.get(limit.resource)
        spent, maximum = (quantity(known.unit if known else "count", x) for x in (limit.spent, limit.maximum))
        why = f"the limit on {limit.resource} is reached ({spent} of {maximum})"
    return f"[Stopped: {why}]" + (f"\n{said}" if said and outcome.partial else "")
