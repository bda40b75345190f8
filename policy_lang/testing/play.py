"""Plays the events of a test against ``step``, as a driver would send them: ids, times, pools, and what a driver
does by itself (`RunStarted`, `RetryDue`, `ToolRequested`, `Resolved`, the ends of what is cancelled).

Decides nothing. An event that the run is in no position for raises ``Impossible`` and is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.core import decisions as d
from engine.core import draws
from engine.core import events as e
from engine.core.budgets import Budget, budget_of
from engine.core.canonical import arguments_key
from engine.core.core import PHASE
from engine.core.ledger import RUNNING, Ledger
from engine.core.machine.machine import Phase
from engine.core.messages import Usage
from engine.core.state import ASKED, NO_TIME, STARTED, ClientInfo, RoundCall, State, Used
from engine.core.step import Compiled, suspended, wake_at
from engine.core.vocabulary import RESOURCES
from engine.run.booking import Account
from policy_lang.cases import Asked, Event, Given
from policy_lang.resolve.tests import TOOL_ENDS
from policy_lang.testing.seat import THREAD, TOP, seated
from policy_lang.testing.start import Impossible, by_the_thread, used_by_itself, used_by_others
from policy_lang.testing.words import possible, situation

CLIENT = "main"
"""The client that the host would use by itself."""

_MOST_TIMERS = 100_000
"""Timers that may ring while a test lets time pass."""


class Record(NamedTuple):
    """One event and what was decided. ``supplied``: a driver sends it by itself."""

    event: e.AnyEvent
    decision: d.AnyDecision
    before: State
    after: State
    supplied: bool


class Player:
    """One run of one policy. ``records`` is everything that was sent so far, the ledger's looks left out."""

    def __init__(self, compiled: Compiled, given: Sequence[Given], agent: str = "") -> None:
        """``compiled`` is the policy at the top; with ``agent`` the run is that of such an agent below it."""
        self.ledger = Ledger()
        self.run, self.compiled = seated(self.ledger, compiled, agent, given)
        self.policy = self.compiled.policy
        self.records: list[Record] = []
        self.at = 0
        self.state = self.compiled.initial
        self.children: dict[str, str] = {}
        """Those spawned and not ended, with their agents."""
        self.below = Used()
        """What ended children have used."""
        self._budgets: dict[str, Budget] = {}
        self._calls = self._rounds = 0
        self._from = 0
        """Where the records of the last event begin, those of what had to come before it left out."""
        self._due: dict[str, int] = {}
        """When a further attempt of a tool call begins (ms)."""
        self._cut_at = NO_TIME
        """When the attempt in hand is cut (ms)."""
        self._begin(given)

    def _begin(self, given: Sequence[Given]) -> None:
        earlier = by_the_thread(given)
        self.account = Account(self.ledger, self.run, self.compiled)
        model = self.model()
        clients = tuple(ClientInfo(name, model) for name in dict.fromkeys((CLIENT, *self.policy.clients())))
        used_by_others(self.ledger, self.run, given)
        thread, parent = (THREAD if earlier else None), (None if self.run == TOP else TOP)
        started = e.RunStarted(0, self.run, thread, parent, clients=clients, thread_used=earlier)
        self._send(started, supplied=True)
        if not self.ended:
            self.state = used_by_itself(self.compiled, self.state, given)
            self.account.resume(self.state, None)
            self.at = next((g.amount for g in given if g.resource == "wall"), 0)

    def model(self) -> str:
        """What every client is: the first model of the price table, so that a cost can be told."""
        return self.policy.prices[0].model if self.policy.prices else ""

    @property
    def phase(self) -> int:
        return self.state.vars[PHASE]

    @property
    def ended(self) -> bool:
        return self.phase == Phase.ENDED

    # ---- one event of a test

    def play(self, event: Event) -> list[Record]:
        """Send one event and what a driver sends after it, which is returned. Raises ``Impossible``."""
        self._from = len(self.records)
        _PLAY[event.kind](self, event)
        return self.records[self._from :]

    def _call(self, event: Event) -> None:
        if self.phase == Phase.WAITING:
            self._retry()
        elif self.phase == Phase.READY or (self.ended and len(self.records) == 1):
            self._request(supplied=False)
        else:
            raise self._impossible("no call can be made here")

    def _request(self, supplied: bool) -> None:
        self._calls += 1
        if self.state.call is not None and self.state.call.id.isdecimal():
            self._calls = max(self._calls, int(self.state.call.id) + 1)  # a fallback is a call of its own
        self._obey(self._send(e.CallRequested(self.at, str(self._calls), CLIENT, self.model()), supplied))

    def _retry(self) -> None:
        call = self.state.call
        assert call is not None
        self.at = max(self.at, call.not_before)
        self._obey(self._send(e.RetryDue(self.at, call.id), supplied=True))

    def _attempt(self) -> tuple[str, int]:
        """The attempt that the model is about to end; a driver has asked for it by itself."""
        if self.phase == Phase.READY:
            self._request(supplied=True)
        elif self.phase == Phase.WAITING:
            self._retry()
        call = self.state.call
        if self.phase != Phase.CALLING or call is None:
            raise self._impossible("the model is not asked anything here")
        self._from = len(self.records)
        return call.id, call.attempt

    def _answers(self, event: Event) -> None:
        call, attempt = self._attempt()
        usage = Usage(0, event.tokens or 0)
        self._obey(self._send(e.ModelReplied(self.at, call, attempt, text=event.text != "", usage=usage, ref="answer")))

    def _asks(self, event: Event) -> None:
        call, attempt = self._attempt()
        self._rounds += 1
        calls = tuple(_proposed(f"{self._rounds}.{i}", asked) for i, asked in enumerate(event.asked))
        usage = Usage(0, event.tokens or 0)
        self._obey(self._send(e.ModelReplied(self.at, call, attempt, "tool_calls", False, calls, usage, ref="reply")))

    def _fails(self, event: Event) -> None:
        call, attempt = self._attempt()
        usage = None if event.tokens is None else Usage(0, event.tokens)
        failed = e.ModelFailed(self.at, call, attempt, event.word, event.retry_after, usage=usage)
        self._obey(self._send(failed))

    def _tool(self, event: Event) -> None:
        running = [c for c in self.state.round if c.tool == event.name and c.status == STARTED]
        # A call that waits for its next attempt is not running yet: whatever runs ends before.
        call = min(running, key=lambda c: max(self.at, self._due.get(c.id, 0)), default=None)
        if call is None or self.phase != Phase.TOOLS:
            raise self._impossible(f"no call of `{event.name}` is running here")
        self.at = max(self.at, self._due.get(call.id, 0))
        self._tool_ends(call, TOOL_ENDS[event.word], event.result)

    def _tool_ends(self, call: RoundCall, status: str, result: str = "", *, supplied: bool = False) -> None:
        ended = e.ToolEnded(self.at, call.id, call.attempt, status, result, ref="result")  # type: ignore[arg-type]
        self._obey(self._send(ended, supplied))

    def _spawn(self, event: Event) -> None:
        if self.phase not in Phase.LIVE:
            raise self._impossible("no agent can be spawned here")
        ledger, agent = self.ledger, event.name
        child = ledger.next_id(self.run)
        refused = ledger.may_spawn(self.run, self.at)
        queued = refused is None and ledger.full(self.run)
        decision = self._send(e.SpawnRequested(self.at, child, agent, "", refused, queued))
        if isinstance(decision, d.Spawn | d.Queue):
            asked = None if event.tokens is None else {"tokens": event.tokens}
            ledger.spawn(self.run, child, agent, self._budget(agent), self.at, asked)
            ledger.wake(child, self.at)
            self.children[child] = agent
        else:
            self._obey(decision)

    def _budget(self, agent: str) -> Budget:
        if agent not in self._budgets:
            self._budgets[agent] = budget_of(self.policy.of_agent(agent))
        return self._budgets[agent]

    def running(self) -> list[str]:
        """The children that run now, those in the queue left out."""
        return [id for id in self.children if self.ledger.nodes[id].state == RUNNING]

    def _child_ends(self, event: Event) -> None:
        chosen = [id for id in self.running() if event.name in ("", self.children[id])]
        if not chosen:
            name = f"`{event.name}`" if event.name else "agent"
            raise self._impossible(f"no {name} is running here")
        child, used = chosen[0], Used(output_tokens=event.tokens or 0)
        self.ledger.charge(child, draws.draw_of(used))
        self.ledger.close(child, self.at)
        del self.children[child]
        self.below = Used(output_tokens=self.below.output_tokens + used.output_tokens)
        while waiting := self.ledger.next_queued(self.run):
            if not self.ledger.wake(waiting, self.at):
                break
        self._obey(self._send(e.ChildEnded(self.at, child, "completed", used)))

    def _approved(self, event: Event) -> None:
        granted = event.kind == "approved"
        if self.phase == Phase.ASKING:
            self._extend(0 if granted else -1)
            return
        call = next((c for c in self.state.round if c.status == ASKED), None)
        if call is None or self.phase != Phase.TOOLS:
            raise self._impossible("nobody is asked anything here")
        answer = e.ApprovalGiven(self.at, call.id, "granted" if granted else "refused")
        self._obey(self._send(answer))

    def _extended(self, event: Event) -> None:
        if self.phase != Phase.ASKING:
            raise self._impossible("nobody is asked for more of anything here")
        self._extend(event.amount)

    def _extend(self, amount: int) -> None:
        """Below 0: nothing is granted; 0: all that is asked for."""
        request = self.compiled.requests(self.state)[0]
        answer = e.ExtensionAnswered(self.at, request.id, "granted" if amount >= 0 else "refused", max(0, amount))
        self._obey(self._send(answer))

    def _cancelled(self, event: Event) -> None:
        if self.phase not in Phase.LIVE:
            raise self._impossible("there is nothing to cancel here")
        self._obey(self._send(e.Cancelled(self.at)))

    def _passes(self, event: Event) -> None:
        if self.ended:
            raise self._impossible("nothing waits for the time any more")
        until = self.at + event.amount
        for _ in range(_MOST_TIMERS):
            due, ring = self._next_timer()
            if due > until or self.ended:
                break
            self.at = max(self.at, due)
            before = self.state
            ring()
            if self.state is before:
                break
        if not self.ended and self.records[-1].event.at < until:
            self.at = until
            self._obey(self._send(e.Tick(until)))
        self.at = until

    def _next_timer(self) -> tuple[int, Callable[[], None]]:
        """What a driver does next if nothing happens, and when (ms)."""
        state, phase = self.state, self.phase
        timers: list[tuple[int, Callable[[], None]]] = []
        if phase == Phase.WAITING and state.call is not None:
            timers.append((state.call.not_before, self._retry))
        if phase == Phase.CALLING and state.call is not None:
            timers.append((self._cut_at, self._cut_call))
        if phase == Phase.TOOLS:
            timers += [(c.deadline, lambda c=c: self._cut(c)) for c in state.round if c.status == STARTED]  # type: ignore[misc]
        timers.append((wake_at(state), self._tick))
        return min(timers, key=lambda timer: timer[0])

    def _cut_call(self) -> None:
        call = self.state.call
        assert call is not None
        self._obey(self._send(e.ModelFailed(self.at, call.id, call.attempt, "timeout"), supplied=True))

    def _cut(self, call: RoundCall) -> None:
        self._tool_ends(call, "timed_out", supplied=True)

    def _tick(self) -> None:
        self._obey(self._send(e.Tick(self.at), supplied=True))

    # ---- what a driver does

    def _send(self, event: e.AnyEvent, supplied: bool = False) -> d.AnyDecision:
        """One step of the run, with a look at the ledger before it where a driver takes one."""
        if suspended(self.state) and not isinstance(event, e.Cancelled):
            self.ledger.wake(self.run, event.at)  # it goes on, and so do the clocks that have stood still
        seen = self.account.show(event, self.state)
        if seen is not None:
            self.state, _ = self.compiled.step(self.state, seen)
        before = self.state
        self.state, decision = self.compiled.step(before, event)
        self.account.book(event, decision, self.state)
        if suspended(self.state):
            self.ledger.suspend(self.run, event.at)
        if isinstance(decision, d.Illegal):
            raise Impossible(decision.problem, possible(self))
        self.records.append(Record(event, decision, before, self.state, supplied))
        return decision

    def _obey(self, decision: d.AnyDecision) -> None:
        """Do what was decided, as far as it needs nothing from the world."""
        if isinstance(decision, d.Resolve):
            self._obey(self._send(e.Resolved(self.at, decision.name, "ok", "text"), supplied=True))
        elif isinstance(decision, d.Call):
            self._cut_at = decision.deadline
        elif isinstance(decision, d.RunTools):
            self._start(decision)
        elif isinstance(decision, d.Execute):
            self._due[decision.id] = decision.not_before
        elif isinstance(decision, d.Stop):
            self._stop(decision)

    def _start(self, decision: d.RunTools) -> None:
        started = {call.id for call in self.state.round if call.status == STARTED}
        for verdict in decision.verdicts:
            if isinstance(verdict, d.Execute) and verdict.id not in started and self.phase == Phase.TOOLS:
                self._obey(self._send(e.ToolRequested(self.at, verdict.id), supplied=True))

    def _stop(self, decision: d.Stop) -> None:
        call, calls = self.state.call, {c.id: c for c in self.state.round}
        if decision.cancel_call and call is not None:
            self._send(e.ModelFailed(self.at, call.id, call.attempt, "aborted"), supplied=True)
        for id in decision.cancel:
            self._tool_ends(calls[id], "cancelled", supplied=True)

    def _impossible(self, problem: str) -> Impossible:
        because = self.records[-1].decision.because if self.ended else ""
        return Impossible(f"{problem}: {situation(self)}", possible(self), None, because)

    # ---- looking at it

    def seen(self) -> State:
        """The state of the run if it looked at its tree now."""
        shown = self.account.show(e.Tick(self.at), self.state)
        return self.state if shown is None else self.compiled.step(self.state, shown)[0]

    def standing(self, resource: str) -> int:
        """What counts of a resource: in the narrowest scope in which it is limited, else in its usual one."""
        if resource in ("children", "live_children"):
            node = self.ledger.nodes[self.run]
            return node.children if resource == "children" else len(self.ledger.children(self.run))
        hits = [hit for hit in self.compiled.standings(self.seen(), self.at) if hit.resource == resource]
        if hits:
            return min(hits, key=lambda hit: _NARROW.index(hit.scope)).used
        if resource == "wall":
            return self.at - self.state.book.run.started
        below = getattr(self.below, resource) if RESOURCES[resource].scope == "subtree" else 0
        return int(getattr(self.compiled.used(self.state), resource) + below)


_NARROW = ("run", "node", "subtree", "thread", "")


def _proposed(id: str, asked: Asked) -> e.Proposed:
    """The call of a tool. Arguments that are no JSON are a name for some; without any they are equal."""
    args = asked.args
    key = arguments_key("{}" if args is None else args) or (args or "")
    return e.Proposed(id, asked.name, key, registered=not asked.unknown)


_PLAY: dict[str, Callable[[Player, Event], None]] = {
    "call": Player._call,
    "answers": Player._answers,
    "asks": Player._asks,
    "fails": Player._fails,
    "tool": Player._tool,
    "spawn": Player._spawn,
    "child_ends": Player._child_ends,
    "approved": Player._approved,
    "refused": Player._approved,
    "extended": Player._extended,
    "cancelled": Player._cancelled,
    "passes": Player._passes,
}

__all__ = ["CLIENT", "NO_TIME", "TOP", "Impossible", "Player", "Record"]
