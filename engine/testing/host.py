"""A host that obeys every decision and plays a world: what our own driver does, without clock, network and contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from engine.core import decisions as d
from engine.core import events as e
from engine.core.host import FULL
from engine.core.messages import Usage
from engine.core.state import ASKED, EXTERNAL, NO_TIME, State
from engine.core.step import Compiled, suspended, wake_at
from engine.testing.scripts import ANSWER, Tool, Turn, World

Answered = Literal["granted", "refused", "expired", "nobody"]


@dataclass(frozen=True)
class Step:
    """One event of a run: what was decided, and the states around it."""

    event: e.AnyEvent
    decision: d.AnyDecision
    before: State
    after: State


@dataclass
class Host:
    """Plays ``world`` under a policy. ``steps`` is the run so far; ``keep`` is called after each of them."""

    compiled: Compiled
    world: World
    keep: Callable[[Step], None] = lambda step: None
    steps: list[Step] = field(default_factory=list)
    at: int = 0

    def __post_init__(self) -> None:
        self.state = self.compiled.initial
        self.calls = 0
        self.turns = 0
        self.asked = 0
        self.granted = 0
        self.rounds = 0
        self.turn = ANSWER
        self.tools: dict[str, Tool] = {}
        self.attempts: dict[str, int] = {}
        self.ended = False

    def run(self, most: int = 400) -> list[Step]:
        """From the start to the end. ``most`` steps, then it is cancelled."""
        before = self.world.before
        thread, world = "thread" if before else None, self.world
        without = {name for name, lacks in (("rounds", world.early), ("retract", not world.retracts)) if lacks}
        profile = tuple(ability for ability in FULL if ability not in without)
        start = e.RunStarted(self.at, "run", thread, profile=profile, thread_used=before, clients=world.clients)
        decision = self.send(start)
        while not self.ended:
            if len(self.steps) > most:
                decision = self.send(e.Cancelled(self.at, "too long"))
                most *= 2
            decision = self.follow(decision)
        return self.steps

    def send(self, event: e.AnyEvent) -> d.AnyDecision:
        """One step. A host that obeys is never told that it broke the protocol."""
        before = self.state
        self.state, decision = self.compiled.step(before, event)
        step = Step(event, decision, before, self.state)
        self.steps.append(step)
        self.keep(step)
        assert not isinstance(decision, d.Illegal), f"{event}: {decision.problem}"
        self.ended = self.ended or isinstance(decision, d.End)
        return decision

    def follow(self, decision: d.AnyDecision) -> d.AnyDecision:
        """Do what was decided; returns what is decided next."""
        if isinstance(decision, d.Call):
            return self.attempt(decision)
        if isinstance(decision, d.Retry):
            self.at = max(self.at, decision.not_before)
            return self.send(e.RetryDue(self.at, decision.call))
        if isinstance(decision, d.Resolve):
            return self.resolve(decision)
        if isinstance(decision, d.RunTools):
            return self.request() if decision.complete else self.run_tools(decision)
        if isinstance(decision, d.Suspend):
            return self.asked_people()
        if isinstance(decision, d.Stop):
            return self.stop(decision)
        if isinstance(decision, d.End):
            return decision
        assert isinstance(decision, d.Continue), f"nothing follows from {decision}"
        return self.request()

    def request(self, answered: tuple[str, ...] = ()) -> d.AnyDecision:
        """The next call."""
        self.calls += 1
        id, w = str(self.calls), self.world
        return self.send(e.CallRequested(self.at, id, "main", w.model, w.input_tokens, w.max_output, answered))

    def resolve(self, decision: d.Resolve) -> d.AnyDecision:
        """The host's function answers as the world says."""
        statuses = self.world.resolver
        status = statuses[self.asked % len(statuses)] if statuses else "ok"
        advice = self.world.advice
        step = advice[self.asked % len(advice)] if advice else ""
        self.asked += 1
        return self.send(e.Resolved(self.at, decision.name, status, "text" if status == "ok" else "", step))

    # -- people ---------------------------------------------------------------------------------

    def asked_people(self) -> d.AnyDecision:
        """The run is suspended: somebody cancels it, or one thing after the other is answered."""
        stopped = self.interrupted(self.turn.interrupt_people)
        if stopped:
            return stopped
        self.at += self.world.thinks
        last: d.AnyDecision = d.Wait(NO_TIME)
        for _ in range(100):
            if not suspended(self.state):
                break
            last = self.person(self.compiled.requests(self.state)[0])
            if isinstance(last, d.RunTools) and (started := [v for v in last.verdicts if isinstance(v, d.Execute)]):
                last = self.run_all([v.id for v in started])
        if suspended(self.state):
            return self.send(e.Cancelled(self.at, "nobody is heard"))
        # The last call of the round was answered instead of executed: nothing is left to wait for.
        return self.request() if isinstance(last, d.Reply) and not self.state.round else last

    def person(self, request: d.Request) -> d.AnyDecision:
        """What the world's people answer to one request."""
        if request.kind == "external":
            if request.until < NO_TIME and self.tools[request.id].answer == "expired":
                self.at = max(self.at, request.until)
                return self.send(e.Tick(self.at))
            tool = self.tools[request.id]
            return self.send(e.ToolEnded(self.at, request.id, 0, tool.later, tool.result, None, "", "result"))
        if request.kind == "tool":
            return self.answer(d.Ask(0, 0, request.id, request.until))
        grants = self.world.grants or (-1,)
        amount = grants[self.granted % len(grants)]
        self.granted += 1
        if amount < -1 and request.until < NO_TIME:
            self.at = max(self.at, request.until)
            return self.send(e.Tick(self.at))
        answer: Answered = "granted" if amount >= 0 else "refused"
        return self.send(e.ExtensionAnswered(self.at, request.id, answer, max(0, amount)))

    # -- an attempt -----------------------------------------------------------------------------

    def attempt(self, call: d.Call) -> d.AnyDecision:
        """One attempt, as the turn at hand says."""
        if call.call.isdecimal():
            self.calls = max(self.calls, int(call.call))  # a fallback is a call of its own
        turn = self.turn = self.world.turns[self.turns] if self.turns < len(self.world.turns) else ANSWER
        self.turns += 1
        for _ in range(turn.lost):
            again = self.send(e.CallRequested(self.at, call.call))
            if not isinstance(again, d.Call):
                return again
            call = again
        stopped = self.interrupted(turn.interrupt)
        if stopped:
            return stopped
        for usage in turn.reports:
            self.send(e.UsageReported(self.at, call.call, call.attempt, usage))
        self.at += turn.takes
        if self.at >= call.deadline:
            self.at = call.deadline
            return self.send(e.ModelFailed(self.at, call.call, call.attempt, "timeout", usage=turn.usage))
        if turn.failure:
            return self.send(self.failure(call, turn))
        reply = self.reply(call, turn)
        decision = self.start_early(reply) if self.world.early else self.send(reply)
        if turn.retold and turn.usage is not None:
            self.send(e.UsageReported(self.at, call.call, call.attempt, turn.usage))
        return decision

    def failure(self, call: d.Call, turn: Turn) -> e.ModelFailed:
        """How the attempt fails."""
        return e.ModelFailed(
            self.at,
            call.call,
            call.attempt,
            turn.failure,
            turn.retry_after,
            turn.jitter,
            turn.partial,
            turn.usage,
            turn.estimated,
        )

    def reply(self, call: d.Call, turn: Turn) -> e.ModelReplied:
        """The model's reply. Without tools to call, a model that is not stubborn answers in text."""
        tools, text = turn.tools, turn.text
        if call.final and not turn.stubborn:
            tools, text = tuple(t for t in tools if t.kind in ("hosted", "output")), text or bool(tools)
        self.rounds += 1
        self.tools = {f"{self.rounds}.{i}": tool for i, tool in enumerate(tools)}
        proposed = tuple(
            e.Proposed(id, t.name, t.args, t.kind, t.registered, t.problem) for id, t in self.tools.items()
        )
        return e.ModelReplied(
            self.at, call.call, call.attempt, turn.finish, text, proposed, turn.usage, turn.estimated, "reply"
        )

    def start_early(self, reply: e.ModelReplied) -> d.AnyDecision:
        """Tools start one by one; after the first, or after all of them, the reply is reported, or it never is."""
        early = [p for p in reply.calls if p.kind == "function" and not p.problem]
        for proposed in early[:1] if self.turn.together else early:
            last = self.send(e.ToolRequested(self.at, proposed.id, proposed.name, proposed.args, proposed.registered))
            if isinstance(last, d.Execute):
                self.attempts[proposed.id] = last.attempt
            elif not isinstance(last, d.Reply | d.Ask):
                return last
        if early and not self.people_asked() and self.turn.untold and len(early) == len(reply.calls):
            return self.request(tuple(p.id for p in early))
        return self.send(reply)

    def interrupted(self, how: str) -> d.AnyDecision | None:
        """Cancellation or a tick; what they decide, unless the run goes on."""
        if not how:
            return None
        event = (
            e.Cancelled(self.at) if how == "cancel" else e.Tick(max(self.at, min(wake_at(self.state), self.at + 50)))
        )
        self.at = event.at
        decision = self.send(event)
        # The time of a person may be over while other calls of the round run on.
        goes_on = isinstance(decision, d.Wait) or (isinstance(decision, d.RunTools) and not decision.complete)
        return None if goes_on else decision

    # -- a round --------------------------------------------------------------------------------

    def run_tools(self, decision: d.RunTools) -> d.AnyDecision:
        """Have people answer, start what may run and report the ends, together or one after the other."""
        ids = [v.id for v in decision.verdicts if isinstance(v, d.Execute)]
        last: d.AnyDecision = decision
        if not self.turn.patient:
            asked = [v for v in decision.verdicts if isinstance(v, d.Ask) and not v.external]
            last, allowed = self.ask_people(last, asked)
            ids = sorted([*ids, *allowed])
        if isinstance(last, d.RunTools) and not last.complete:
            last = self.run_all(ids)
        if suspended(self.state):
            return self.asked_people()
        # The last call of the round was answered instead of started: nothing is left to wait for.
        return self.request() if isinstance(last, d.Wait | d.Reply | d.RunTools) else last

    def ask_people(self, last: d.AnyDecision, asked: list[d.Ask]) -> tuple[d.AnyDecision, list[str]]:
        """A person answers about each call, or does not; what is decided at last, and the calls that may run."""
        allowed: list[str] = []
        waiting = {ask.id: ask for ask in asked}
        while waiting:
            last = self.answer(next(iter(waiting.values())))
            if not isinstance(last, d.RunTools):
                break
            allowed += [v.id for v in last.verdicts if isinstance(v, d.Execute)]
            for verdict in last.verdicts:
                waiting.pop(verdict.id, None)
        return last, allowed

    def answer(self, ask: d.Ask) -> d.AnyDecision:
        """What the world's person says; who does not answer lets the time pass."""
        tool = self.tools[ask.id]
        self.at += self.turn.takes
        if tool.answer == "expired" and ask.until < NO_TIME:
            self.at = max(self.at, ask.until)
            return self.send(e.Tick(self.at))
        return self.send(e.ApprovalGiven(self.at, ask.id, tool.answer, tool.edited))

    def run_all(self, ids: list[str]) -> d.AnyDecision:
        """These tools, together or one after the other; something else than a wait ends it."""
        batches = [ids] if self.turn.together or self.turn.untold else [[id] for id in ids]
        last: d.AnyDecision = d.Wait(NO_TIME)
        for batch in batches:
            last = self.run_batch(batch)
            if not isinstance(last, d.Wait | d.Reply):
                return last
        return last

    def run_batch(self, ids: list[str]) -> d.AnyDecision:
        """These tools at the same time."""
        last: d.AnyDecision = d.Wait(NO_TIME)
        running: list[str] = []
        for id in ids:
            if id in self.attempts:
                running.append(id)
                continue
            for _ in range(1 + self.tools[id].restarts):
                last = self.send(e.ToolRequested(self.at, id))
                if isinstance(last, d.Execute):
                    self.attempts[id] = last.attempt
                elif not isinstance(last, d.Reply):
                    return last
            if isinstance(last, d.Execute):
                running.append(id)
        if self.turn.untold and running and not self.people_asked():
            return self.request(tuple(ids))
        stopped = self.interrupted(self.turn.interrupt_tools)
        if stopped:
            return stopped
        for id in sorted(running, key=lambda id: self.tools[id].rank):
            last = self.execute(id)
            if not isinstance(last, d.Wait):
                return last
        return last

    def people_asked(self) -> bool:
        """Does a call of the round wait for a person?"""
        return any(call.status in (ASKED, EXTERNAL) for call in self.state.round)

    def execute(self, id: str) -> d.AnyDecision:
        """A tool runs until it ends for good."""
        self.at += self.turn.takes
        last = self.send(self.end_of(id))
        while isinstance(last, d.Execute):
            self.attempts[id] = last.attempt
            self.at = max(self.at, last.not_before) + self.turn.takes
            last = self.send(self.end_of(id))
        return last

    def end_of(self, id: str) -> e.ToolEnded:
        """How a tool ends, by itself or because it was cut."""
        tool = self.tools[id]
        attempt = self.attempts[id]
        status = "ok" if tool.recovers and attempt >= tool.recovers else tool.status
        return e.ToolEnded(self.at, id, attempt, status, tool.result, tool.usage, tool.ends, "result", self.turn.jitter)

    # -- the end --------------------------------------------------------------------------------

    def stop(self, decision: d.Stop) -> d.AnyDecision:
        """Cancel what is in flight and report its end; or wait until the grace is over."""
        if self.world.stuck:
            self.at = decision.until
            return self.send(e.Tick(self.at))
        last: d.AnyDecision = decision
        if decision.cancel_call:
            attempt = self.state.call.attempt if self.state.call else 1
            last = self.send(e.ModelFailed(self.at, decision.cancel_call, attempt, "aborted", usage=Usage(1, 0)))
        for id in decision.cancel:
            last = self.send(e.ToolEnded(self.at, id, self.attempts[id], "cancelled"))
        return last
