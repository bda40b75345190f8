"""The laws watching a real run: its events and decisions become the observations that ``laws`` is about.

Nothing of the state is read. Besides the shared laws, what only a real run shows is checked here:
each tool call has exactly one result (L3), what the outcome says was used is what was seen (L10),
and every decision names the rule behind it (L15).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.laws import Laws, laws_of, watch
from engine.core.machine.plan import NOTHING, RESERVE, Plan
from engine.core.messages import Usage
from engine.core.policy import Consult, Fallback, Policy, Retry, ToolRule
from engine.core.state import EARLIER_ATTEMPTS, NO_TIME, Outcome
from engine.verify.breakers import Breakers
from engine.verify.failures import LAST, Clients, Failed, Ladders
from engine.verify.ledger import Attempt, Ledger
from engine.verify.observe import Observation


class Watch:
    """Give it every event with its decision, in order; ``broken`` says in words which laws do not hold."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.laws: Laws = laws_of(policy)
        self.ghosts = self.laws.initial
        self.ledger = Ledger(policy, self.laws)
        self.breakers = Breakers(policy)
        self.ladders = Ladders(policy)
        self.clients = Clients()
        self._failed: Failed | None = None
        self._falls = False
        self.broken: list[str] = []
        self.held: set[int] = set()
        self.outcome: Outcome | None = None
        self._at = 0
        self._begun = False
        self._stopping = False
        self._request = e.CallRequested(0, "")
        self._attempt = 0
        self._flying = False
        self._known: list[tuple[str, int]] = []
        self._of = ""
        self._rounds = True
        self._retracts = True
        self._implied = False
        self._refused = False
        self._resolve: d.Resolve | None = None
        self._grants: list[int] = []
        self._passed: list[int] = []
        self._tools: dict[str, _Tool] = {}
        self._question: _Question | None = None
        self._paused: int | None = None
        self._tools_above = -1
        """How many executions the limits of ancestors leave; below 0: any number."""

    def see(self, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        """One more step of the run."""
        if isinstance(decision, d.Illegal):
            return
        if not self._ignored(event, decision):
            self._at = max(self._at, event.at)
            if self._paused is not None:
                self.ledger.stand(self._at - self._paused)
                self._paused = self._at
        shown = self.ledger.pools.tools
        self._tools_above = -1 if shown is None else shown
        self._named(decision)
        if self._question is None:
            self._unasked(decision)
        self._passed = [self._plan(n.resource, n.because) for n in decision.notes if n.kind == "skipped" and n.maximum]
        self._grants = [self._plan(n.resource, n.because) for n in decision.notes if n.kind == "extended"]
        if isinstance(event, e.PoolsSeen):
            self._shown(event)
        elif isinstance(event, e.SpawnRequested | e.WakeRequested):
            self._spawned(event, decision)
        elif isinstance(event, e.RunStarted):
            self._started(event, decision)
        elif isinstance(event, e.CallRequested | e.RetryDue | e.Resolved):
            self._asked(event, decision)
        elif type(event) is e.UsageReported:
            self._usage(event.call, event.attempt, event.usage)
        elif isinstance(event, e.ModelReplied | e.ModelFailed):
            self._settled(event, decision)
        elif isinstance(event, e.ToolRequested):
            self._tool_requested(event, decision)
        elif isinstance(event, e.ToolEnded):
            self._tool_ended(event, decision)
        elif isinstance(event, e.ExtensionAnswered) or (isinstance(event, e.Tick) and self._question is not None):
            self._answered(event, decision)
        elif isinstance(event, e.ApprovalGiven | e.Tick):
            self._approval(event, decision)
        self._finish(decision)
        if not self._only_people():
            self._paused = None
        elif self._paused is None:
            self._paused = self._at

    def _shown(self, event: e.PoolsSeen) -> None:
        """Others of the tree have taken more of the limits that the run shares, or given something back."""
        if self.outcome is not None:
            return
        before, self.ledger.pools = self.ledger.pools, event.pools
        if event.pools.others == before.others:
            return
        asked = sum(tool.asked and tool.pending for tool in self._tools.values())
        left = dict(zip((ghost.name for ghost in self.laws.ghosts), self.ghosts, strict=True))
        for plan in self.laws.plans:
            if plan.counted and plan.limit.scope != "run":
                more = self.ledger.counted_left(plan, asked) - left[f"left_of_{plan.name}"]
                for _ in range(abs(more)):
                    self._observe("others_returned" if more > 0 else "others_took", {"limit": plan.index + 1})

    def _spawned(self, event: e.SpawnRequested | e.WakeRequested, decision: d.AnyDecision) -> None:
        if isinstance(decision, d.Spawn | d.Queue):
            late, refused = int(self.ledger.late(self._at)), int(event.refused is not None)
            self._observe("spawned", {"late": late, "refused": refused})

    def _only_people(self) -> bool:
        """Is nothing in flight, and are only people awaited?"""
        if self._stopping or self.outcome is not None:
            return False
        waiting = [tool for tool in self._tools.values() if not tool.results]
        awaited = bool(waiting) and not self._implied and all(tool.pending or tool.away for tool in waiting)
        return self._question is not None or awaited

    def _ignored(self, event: e.AnyEvent, decision: d.AnyDecision) -> bool:
        """A report that came too late moves nothing, not even the clock."""
        if isinstance(event, e.ToolRequested) and isinstance(decision, d.Reply):
            tool = self._tools.get(event.id)
            return tool is not None and tool.results > 0
        if isinstance(event, e.RunStarted):
            return self._begun
        if not isinstance(decision, d.Wait):
            return False
        if isinstance(event, e.ToolEnded):
            tool = self._tools.get(event.id)
            return tool is None or (event.attempt not in tool.lost and self._tells_nothing(event))
        if isinstance(event, e.UsageReported | e.ModelReplied | e.ModelFailed):
            return event.usage is None or (event.call, event.attempt) not in self._known
        return False

    # -- the run as a whole ---------------------------------------------------------------------

    def _started(self, event: e.RunStarted, decision: d.AnyDecision) -> None:
        if self._begun:
            return
        self._begun = True
        self._rounds = "rounds" in event.profile
        self._retracts = "retract" in event.profile
        self.clients.known = {client.name: client for client in event.clients}
        self.ledger.started = event.at
        used = event.thread_used
        if used is not None:
            self.ledger.earlier = used
        threads = [p for p in self.laws.plans if p.counted and p.limit.scope == "thread"]
        earlier = {f"earlier_{p.name}": getattr(self.ledger.earlier, p.resource) for p in threads}
        self._observe("begun", earlier)

    def _finish(self, decision: d.AnyDecision) -> None:
        """What a decision says about the end of the run."""
        if isinstance(decision, d.Stop):
            self._close(decision.close)
            if not self._stopping:
                self._stopping = True
                self._observe("stop", {})
        elif isinstance(decision, d.End):
            if self.outcome is None:
                self._close(decision.close)
                self._never_started(decision.close)
                self._ended(decision.outcome)
            elif _but_for_usage(decision.outcome) != _but_for_usage(self.outcome):
                self._break("L4: the run has a second outcome")
            if decision.outcome.used != self.ledger.used():
                self._break(f"L10: the outcome says {decision.outcome.used}, seen was {self.ledger.used()}")

    def _never_started(self, replies: Iterable[d.Reply]) -> None:
        """What was to run but never began may be closed with the end; what was in flight must be cancelled before."""
        for reply in replies:
            tool = self._tools.get(reply.id)
            if tool is not None and tool.runs and (not tool.attempt or tool.away or reply.why == "timed_out"):
                tool.runs = False
                self._observe("tool_ended", {})

    def _ended(self, outcome: Outcome) -> None:
        self.outcome = outcome
        about = {"limit": 0, "gone": 0, "tight": 0}
        if outcome.status == "incomplete" and self._of_ancestor(outcome):
            pass  # whose limit it is, the tree has shown
        elif outcome.status == "incomplete" and not self._stopping:
            plan = self._limit(outcome)
            about = self._about(plan.index)
            if outcome.limit is not None and outcome.limit.used < outcome.limit.maximum and plan.resource == "wall":
                self._break("F2: the run ends before its time is over")
        self._observe("end", about)
        for id, tool in self._tools.items():
            if not tool.results:
                self._break(f"L3: the tool call {id} has no result at the end")

    def _of_ancestor(self, outcome: Outcome) -> bool:
        """Is it the limit of an ancestor that ends the run, and has the tree shown that this one refuses?"""
        pools, hit = self.ledger.pools, outcome.limit
        late = pools.wall if self._at >= pools.deadline else None
        shown = (pools.refused, pools.rounds, pools.tools_limit, late)
        return hit is not None and any(
            r is not None and (r.limit.owner, r.limit.resource, r.because) == (hit.owner, hit.resource, outcome.because)
            for r in shown
        )

    def _limit(self, outcome: Outcome) -> Plan:
        hit = outcome.limit
        assert hit is not None
        return next(p for p in self.laws.plans if (p.resource, p.limit.scope) == (hit.resource, hit.scope))

    # -- calls ----------------------------------------------------------------------------------

    def _asked(self, event: e.CallRequested | e.RetryDue | e.Resolved, decision: d.AnyDecision) -> None:
        if self._stopping or self.outcome is not None:
            return
        if isinstance(event, e.CallRequested):
            self._answered_by_host(event.answered, decision)
            if event.call == self._request.call:
                self._observe("settled", {})
                self._flying = False
            else:
                self._next_call(event, decision)
        if isinstance(event, e.Resolved) and self._resolve is not None:
            failed, self._failed = self._failed, None
            if failed is not None:
                self._resolve = None
                self._advised(event, decision, failed)
                return
            self._resolved(event, decision)
        self._called(decision)

    def _called(self, decision: d.AnyDecision) -> None:
        """What is decided about a call that is asked for, or an attempt of one."""
        self._grant_all()
        if isinstance(decision, d.Call):
            self._call(decision)
        elif isinstance(decision, d.Resolve):
            self._resolve = decision
            self._follows(self._request.call)
        elif isinstance(decision, d.Suspend):
            self._questioned(decision, reply=False)
            self._follows("" if self._falls else self._request.call)

    # -- people who are asked about a limit -----------------------------------------------------

    def _questioned(self, decision: d.Suspend, *, reply: bool) -> None:
        self._grant_all()
        (request,) = decision.requests
        index = next(p.index for p in self.laws.plans if p.limit.id == request.id)
        self._question = _Question(index, request.until, reply)
        if request.up_to != self.ledger.most(self.laws.plans[index]):
            self._break(f"L1: a person is asked for up to {request.up_to} more {request.id}")
        if reply and self.laws.plans[index].resource == "tool_iterations":
            self._grant("tool_iterations")
        self._observe("questioned", self._about(index))

    def _unasked(self, decision: d.AnyDecision) -> None:
        """In the midst of a round nobody can be asked: the ladder moves on, as a note says."""
        for note in decision.notes:
            if note.kind == "withheld":
                self._moved_on(self._plan(note.resource, note.because))

    def _moved_on(self, index: int) -> None:
        self._observe("ungrown", {"limit": index + 1})
        self.ledger.move_on(self.laws.plans[index])

    def _answered(self, event: e.ExtensionAnswered | e.Tick, decision: d.AnyDecision) -> None:
        """What a person says about a limit, and what is decided about all that has waited for it."""
        question = self._question
        if question is None or not any(n.kind in ("granted", "withheld") for n in decision.notes):
            if question is not None and isinstance(event, e.ExtensionAnswered) and isinstance(decision, d.Wait):
                self._break(f"F5: nobody has heard the answer about {event.id}")
            return
        self._question, plan = None, self.laws.plans[question.index]
        granted = isinstance(event, e.ExtensionAnswered) and event.answer == "granted" and self._at < question.until
        if granted and isinstance(event, e.ExtensionAnswered):
            most = self.ledger.most(plan)
            amount = min(event.amount or most, most)
            self._observe("grown", {"limit": plan.index + 1, "amount": amount})
            self.ledger.grow(plan, amount)
        else:
            self._moved_on(plan.index)
        told = next(n for n in decision.notes if n.kind in ("granted", "withheld"))
        if (told.kind == "granted", told.maximum) != (granted, self.ledger.maximum(plan)):
            self._break(f"L1: {plan.limit.id} is {told.maximum} by now, seen was {self.ledger.maximum(plan)}")
        if question.reply:
            self._proposed(decision)
        else:
            self._called(decision)

    def _answered_by_host(self, ids: Iterable[str], decision: d.AnyDecision) -> None:
        ends = isinstance(decision, d.End) and _ends_round(decision.outcome)
        for id in ids:
            tool = self._tools.get(id)
            if tool is not None and not tool.results:
                self._result(id)
                self._tool_done(ends=ends)

    def _next_call(self, event: e.CallRequested, decision: d.AnyDecision) -> None:
        missing = [id for id, tool in self._tools.items() if not tool.results]
        if missing and isinstance(decision, d.Call | d.Resolve):
            self._break(f"L3: a call is admitted while {missing} have no result")
        self._request, self._attempt, self._falls = event, 0, False
        for note in decision.notes:
            if note.kind == "switched":
                used = [t.client for t in self.policy.thresholds if t.client and f" {t.client} " in note.text]
                self.clients.other, self.clients.until = used[0] or "", NO_TIME
        self.clients.requested(event.client, self._at)
        self._implied = self._refused = False
        if not isinstance(decision, d.End):
            self._tools = {}

    def _resolved(self, event: e.Resolved, decision: d.AnyDecision) -> None:
        resolve, self._resolve = self._resolve, None
        assert resolve is not None
        if isinstance(decision, d.RunTools):
            self._close([v for v in decision.verdicts if isinstance(v, d.Reply)])
            return
        index = self._plan(resolve.resource, resolve.because)
        answered = event.status in ("ok", "empty")
        if index >= 0 and (not answered or self._consulting(index)):
            place = self.ledger.choose(self.laws.plans[index], event.step) if answered else -1
            if place >= 0:
                self._observe("consulted", {"limit": index + 1, "chosen": place + 1})
            else:
                self.ledger.places[index] = self.ledger.places.get(index, 0) + 1
                self._observe("unresolved", self._about(index))

    def _call(self, decision: d.Call) -> None:
        kind = "call" if decision.attempt == 1 else "attempt"
        if self._falls and decision.attempt == 1:
            self._request, self._attempt = structs.replace(self._request, call=decision.call), 0
        if decision.client != self.clients.now:
            self._break(f"L13: call {decision.call} goes to {decision.client}, not to {self.clients.now}")
        self._falls, request = False, self._request
        if kind == "call":
            self.ladders.taken.clear()
        if decision.call != request.call or decision.attempt != self._attempt + 1:
            self._break(f"L4: attempt {decision.attempt} of call {decision.call} is out of turn")
        if decision.deadline <= self._at and not self.ledger.late(self._at) and decision.final:
            self._break("L8: the final call has no time")
        if decision.deadline > self.ledger.deadline(final=decision.final):
            self._break(f"L8: attempt {decision.attempt} of call {decision.call} may go on when the time is over")
        states = {p.index: self._state(p) for p in self.laws.plans if not p.counted}
        walls = [p.index for p in self.laws.plans if p.resource == "wall"]
        why = 1 + self._plan(decision.why, decision.because) if decision.final else 0
        fields = {
            "final": int(decision.final),
            "why": why,
            "late": int(any(states[i] == NOTHING for i in walls) or self._at >= self.ledger.pools.deadline),
            "spent": int(
                any(s == NOTHING for i, s in states.items() if i not in walls) or self.ledger.pools.refused is not None
            ),
        }
        fields |= {p.field: states[p.index] for p in self.laws.plans if not p.counted}
        self._observe(kind, fields)
        self.ledger.count("llm_attempts")
        if kind == "call":
            self.ledger.count("llm_calls")
        self._attempt, self._flying = decision.attempt, True
        self._follows(decision.call)
        self._known = [*self._known, (decision.call, decision.attempt)][-1 - EARLIER_ATTEMPTS :]
        self.ledger.attempt(decision.call, decision.attempt, Attempt(self._model()))

    def _follows(self, call: str) -> None:
        """What earlier attempts used may be told until the call after next; an empty name is one not yet known."""
        if self._of and call != self._of:
            self._known = [known for known in self._known if known[0] == self._of]
        self._of = call

    def _model(self) -> str:
        if self.clients.now == self._request.client:
            return self._request.model
        return self.clients.known[self.clients.now].model

    def _state(self, plan: Plan) -> int:
        return self.ledger.state(plan, self._at, self._model(), self._request.input_tokens or 0)

    def _settled(self, event: e.ModelReplied | e.ModelFailed, decision: d.AnyDecision) -> None:
        mine = (event.call, event.attempt) == (self._request.call, self._attempt)
        if event.usage is not None:
            self._usage(event.call, event.attempt, event.usage)
        if self._stopping or self.outcome is not None:
            return
        if mine and self._implied and isinstance(event, e.ModelReplied):
            self._merged(event, decision)
        if not (mine and self._flying):
            return
        self._flying = False
        self._observe("settled", {})
        if isinstance(event, e.ModelReplied):
            self._replied(event, decision)
        if isinstance(decision, d.Retry):
            pause = isinstance(event, e.ModelFailed) or event.finish != "stop"
            self._observe("retry", {"pause": int(pause)})
        failed = self._failure(event, decision)
        if failed is not None:
            self._laddered(failed, decision)

    # -- failures -------------------------------------------------------------------------------

    def _failure(self, event: e.ModelReplied | e.ModelFailed, decision: d.AnyDecision) -> Failed | None:
        """The failure whose ladder decided, if one did."""
        if isinstance(decision, d.End) and not _failed(decision.outcome):
            return None
        if isinstance(event, e.ModelFailed):
            shown = event.partial == "delivered" and not self._retracts
            failed = Failed(event.reason, event.retry_after or 0, event.jitter, shown)
            cut = event.reason in ("timeout", "aborted") and self._at >= self._deadline() and not shown
            return None if cut and isinstance(decision, d.Continue) and self._deadline() < NO_TIME else failed
        paused = isinstance(decision, d.Retry) and not any(note.kind == "retry" for note in decision.notes)
        if paused or not isinstance(decision, d.Retry | d.Call | d.Continue | d.Resolve | d.Suspend | d.End):
            return None
        if isinstance(decision, d.Suspend) and self._question is not None:
            return None
        if isinstance(decision, d.Resolve) and decision.resource == "tool_iterations" and event.calls:
            return None
        return Failed("content_filter" if event.finish == "content_filter" else "truncated")

    def _deadline(self) -> int:
        return self.ledger.deadline(final=self._ghost("finalized") > 0)

    def _ghost(self, name: str) -> int:
        return self.ghosts[[g.name for g in self.laws.ghosts].index(name)]

    def _laddered(self, failed: Failed, decision: d.AnyDecision) -> None:
        """The decision is a step of the failure's ladder; which one is worked out from what could be taken."""
        plan = self.ladders.of(failed.reason)
        self._failed = None
        if plan is None:
            if not isinstance(decision, d.End):
                self._break(f"F3: {failed.reason} has no ladder, but the run goes on")
            return
        possible = self.ladders.possible(plan, failed, self.clients, self._at, self._deadline())
        kind = _step_of(decision)
        places = [i for i, step in plan.steps() if i >= failed.start and step.do == kind]
        likely = [i for i in places if i in possible and self._retries_left(plan.rule.then, plan.index, i)]
        place = (likely or places or [LAST])[0]
        fields = self.ladders.fields(plan, possible) | {
            "ladder": plan.index,
            "start": failed.start,
            "step": place,
            "delivered": int(failed.delivered),
            "ends": int(kind == "stop"),
            "falls": int(kind == "fallback"),
            "promises": int(kind == "finalize"),
        }
        for earlier, step in plan.steps():
            if isinstance(step, Fallback) and failed.start <= earlier < place and self._unaffordable(step):
                fields[plan.switch(earlier)] = 0
        self._observe("laddered", fields)
        if place != LAST and place < len(plan.rule.then):
            self._took(plan.rule.then[place], plan.index, place, decision, failed)

    def _retries_left(self, steps: tuple[object, ...], ladder: int, place: int) -> bool:
        step = steps[place] if place < len(steps) else None
        return not isinstance(step, Retry) or self.ladders.taken.get((ladder, place), 0) < step.times

    def _unaffordable(self, step: Fallback) -> bool:
        """Its client would not have been admitted: an amount has too little left, or its model has no price."""
        client = self.clients.free(step)
        if client is None:
            return True
        size = self._request.input_tokens or 0
        amounts = [p for p in self.laws.plans if not p.counted]
        priced = not any(p.resource == "cost" for p in amounts) or client.model in {p.model for p in self.policy.prices}
        return not priced or any(self.ledger.state(p, self._at, client.model, size) == NOTHING for p in amounts)

    def _took(self, step: object, ladder: int, place: int, decision: d.AnyDecision, failed: Failed) -> None:
        if isinstance(step, Retry) and isinstance(decision, d.Retry):
            plan = self.ladders.plans[ladder - 1]
            if decision.not_before != self._at + self.ladders.wait(plan, place, failed):
                self._break(f"F3: a retry waits until {decision.not_before}, which is not what its step says")
            self.ladders.taken[ladder, place] = self.ladders.taken.get((ladder, place), 0) + 1
        elif isinstance(step, Consult) and isinstance(decision, d.Resolve):
            self._resolve, self._failed = decision, replace(failed, start=place)
        elif isinstance(step, Fallback):
            free = self.clients.free(step)
            name = decision.client if isinstance(decision, d.Call) else free.name if free else ""
            if free is not None and name != free.name:
                self._break(f"F3: the fallback goes to {name}, not to {free.name}")
            if name in self.clients.known and not self.clients.switch(step, name, self._at):
                self._break(f"L13: the run switches to {name} a second time")
            self._falls = True
            self._grant_all()
            if isinstance(decision, d.Call):
                self._call(decision)
            elif isinstance(decision, d.Resolve):
                self._resolve = decision
                self._follows("")
            elif isinstance(decision, d.Suspend):
                self._questioned(decision, reply=False)
                self._follows("")

    def _advised(self, event: e.Resolved, decision: d.AnyDecision, failed: Failed) -> None:
        """A consultant was asked about a failure: a later step of that verb, or the next one."""
        plan = self.ladders.of(failed.reason)
        assert plan is not None
        later = [i for i, s in plan.steps() if i > failed.start and s.do == event.step and event.status == "ok"]
        chosen = replace(failed, start=later[0] if later else failed.start + 1)
        if isinstance(decision, d.End) and not _failed(decision.outcome):
            return
        if isinstance(decision, d.Retry):
            self._observe("retry", {"pause": 1})
        self._laddered(chosen, decision)

    def _consulting(self, index: int) -> bool:
        """Does the ladder of the limit stand at a consultant?"""
        steps = self.laws.plans[index].steps
        place = self.ledger.places.get(index, 0)
        return place < len(steps) and isinstance(steps[place], Consult)

    def _usage(self, call: str, attempt: int, usage: Usage) -> None:
        known = self.ledger.attempts.get((call, attempt))
        # The core keeps what was charged for the last attempts: reports about earlier ones come too late.
        if known is not None and (call, attempt) in self._known:
            known.report(usage)

    # -- rounds ---------------------------------------------------------------------------------

    def _replied(self, event: e.ModelReplied, decision: d.AnyDecision) -> None:
        unmetered = isinstance(decision, d.End) and decision.outcome.reason == "usage_unknown"
        for call in event.calls:
            if call.kind == "hosted" and not unmetered:
                self._grant("tool_calls")
                self.ledger.count("tool_calls")
                self._observe("hosted", {})
        functions = [c for c in event.calls if c.kind in e.AWAITED]
        self._tools = {c.id: _Tool(c) for c in functions}
        if functions:
            self._proposed(decision)
        self._grant_all()

    def _proposed(self, decision: d.AnyDecision) -> None:
        """What is decided about the calls of a reply, as they come or once a person has answered."""
        if isinstance(decision, d.Suspend) and decision.requests[0].kind == "extension":
            if decision.requests[0].resource in ("tool_iterations", "tool_calls", "unknown_tools"):
                self._questioned(decision, reply=True)
        elif isinstance(decision, d.Resolve):
            self._grant_all()
            self._resolve = decision
            self._observe("refused", self._about(self._plan(decision.resource, decision.because)))
        elif isinstance(decision, d.RunTools):
            self._round(decision.verdicts, complete=decision.complete)
        elif isinstance(decision, d.End) and _ends_round(decision.outcome):
            self._round(decision.close, complete=False, ends=True)
        self._grant_all()

    def _round(self, verdicts: Iterable[d.Execute | d.Ask | d.Reply], *, complete: bool, ends: bool = False) -> None:
        """The verdicts on a round; where it ends the run, they are stored with its end."""
        self._grant("tool_iterations")
        verdicts = tuple(verdicts)
        if complete and all(isinstance(v, d.Reply) and v.why in _HANDOFF for v in verdicts):
            self._close([v for v in verdicts if isinstance(v, d.Reply)])
            return
        if complete and all(isinstance(v, d.Reply) and v.why == "tool_iterations" for v in verdicts):
            first = verdicts[0]
            self._observe("refused", self._about(self._plan("tool_iterations", first.because)))
            self._close([v for v in verdicts if isinstance(v, d.Reply)])
            return
        self._observe("round", self._admitted())
        self.ledger.count("tool_iterations")
        for index in self._passed:
            self.ledger.places[index] = self.ledger.places.get(index, 0) + 1
            self._observe("unresolved", self._about(index))
        for verdict in verdicts:
            self._verdict(verdict)
        if not ends:
            self._close([v for v in verdicts if isinstance(v, d.Reply)])
        self._grant_all()
        if complete:
            self._observe("complete", {})

    def _admitted(self) -> dict[str, int]:
        return {"late": int(self.ledger.late(self._at)), "spent": int(self.ledger.pools.rounds is not None)}

    def _verdict(self, verdict: d.Execute | d.Ask | d.Reply) -> None:
        tool = self._tools[verdict.id]
        if not isinstance(verdict, d.Reply):
            self._grant("tool_calls")
            tool.runs = True
            tool.away = isinstance(verdict, d.Ask) and verdict.external
            tool.asked = isinstance(verdict, d.Ask) and not verdict.external
            if not tool.asked:
                self.ledger.count("tool_calls")
            above = int(self._tools_above == 0)
            self._tools_above -= 1
            self._observe("asked" if tool.asked else "execute", self._faults(tool) | {"above": above})
            self.breakers.start(tool, self._at)
            return
        if verdict.why in _HANDOFF:
            return
        unknown = int(verdict.why == "unknown_tool")
        if unknown:
            self._grant("unknown_tools")
            self.ledger.count("unknown_tools")
        elif verdict.why == "tool_calls":
            self._grant("tool_calls")
        resource = {"unknown_tool": "unknown_tools", "tool_calls": "tool_calls"}.get(verdict.why, "")
        broken = self.breakers.broken(tool, self._at) if tool.call.registered else 0
        skips = int(verdict.why == "breaker")
        about = {"unknown": unknown, "skips": skips, "broken": broken}
        self._observe("replied", {"limit": 1 + self._plan(resource, verdict.because), **about})

    def _faults(self, tool: _Tool) -> dict[str, int]:
        call = tool.call
        rules = [r for r in self.policy.tools if fnmatchcase(call.name, r.glob)]
        allows = [r for r in rules if r.allow]
        lifted = {id(r) for r in rules if any(_lifts(a.glob, a.base, r.glob, r.base) for a in allows)}
        denied = [r for r in rules if r.deny and id(r) not in lifted]
        executed = self.ledger.counts
        limited = False
        for rule in rules:
            if rule.limit is not None:
                key = _counter(rule)
                limited |= executed.get(key, 0) >= rule.limit
                self.ledger.count(key)
        tool.asks = any(r.ask and id(r) not in lifted for r in rules)
        return {
            "broken": self.breakers.broken(tool, self._at),
            "asks": int(tool.asks),
            "unknown": int(not call.registered),
            "invalid": int(bool(call.problem)),
            "denied": int(bool(denied)),
            "limited": int(limited),
            "no_time": int(self._at >= self.ledger.deadline(final=False)),
        }

    def _tool_requested(self, event: e.ToolRequested, decision: d.AnyDecision) -> None:
        tool = self._tools.get(event.id)
        if tool is None:
            if not self._stopping and self.outcome is None:
                self._joined(event, decision)
            return
        if tool.attempt and not tool.results and isinstance(decision, d.Execute | d.Reply):
            tool.lost.add(tool.attempt)
        if isinstance(decision, d.Execute):
            if decision.attempt != tool.attempt + 1:
                self._break(f"L3: attempt {decision.attempt} of tool call {event.id} is out of turn")
            self._start(tool, decision)
        elif not tool.results:
            self._answered_instead(tool, event.id, decision)

    def _answered_instead(self, tool: _Tool, id: str, decision: d.AnyDecision) -> None:
        """Something has come between the verdict and the start: what never started is not counted."""
        closed = decision.close if isinstance(decision, d.End) else (decision,)
        reply = next((r for r in closed if isinstance(r, d.Reply) and r.id == id), None)
        if reply is not None and not tool.attempt and reply.why in ("no_time", "breaker"):
            tool.runs = False
            broken = self.breakers.broken(tool, self._at, "now") if reply.why == "breaker" else 0
            self._observe("unstarted", {"skips": int(reply.why == "breaker"), "broken": broken})
            self.ledger.counts["tool_calls"] -= 1
            self._uncount(tool)
        if isinstance(decision, d.Reply):
            self._result(id)
            self._tool_done()
        elif reply is not None and not tool.runs:
            self._observe("tool_ended", {})

    def _uncount(self, tool: _Tool) -> None:
        for rule in self.policy.tools:
            if rule.limit is not None and fnmatchcase(tool.name, rule.glob):
                self.ledger.counts[_counter(rule)] -= 1

    def _start(self, tool: _Tool, decision: d.Execute) -> None:
        """An attempt begins; at the first one a breaker that acts at once may have opened since the verdict."""
        at, broken = max(self._at, decision.not_before), 0
        if not tool.attempt:
            broken = self.breakers.broken(tool, self._at, "now")
            self.breakers.start(tool, self._at)
            tool.started = self._at
        tool.attempt = decision.attempt
        late = int(self.ledger.late(at) or decision.deadline <= at)
        self._observe("start", {"late": late, "broken": broken, "ungranted": int(tool.asks and not tool.granted)})

    def _approval(self, event: e.ApprovalGiven | e.Tick, decision: d.AnyDecision) -> None:
        """A person has answered about a call, or did not in time: it may run, or gets a result that says why not."""
        if isinstance(decision, d.RunTools):
            (verdict,) = decision.verdicts
        else:
            closed = decision.close if isinstance(decision, d.End) else ()
            known = [r for r in closed if r.id in self._tools and not self._tools[r.id].results]
            answers = [r for r in known if r.why in _ANSWERS and self._tools[r.id].pending]
            answers += [r for r in known if r.why == "timed_out" and self._tools[r.id].away]
            if not answers or self.outcome is not None:
                return
            verdict = answers[0]
        tool = self._tools[verdict.id]
        granted = isinstance(event, e.ApprovalGiven) and event.answer == "granted"
        if granted and isinstance(event, e.ApprovalGiven) and event.args is not None and event.args != tool.args:
            self.breakers.give_back(tool)
            tool.args = event.args
        if isinstance(verdict, d.Reply):
            if tool.away:
                self._overdue(tool, verdict, ends=isinstance(decision, d.End))
            else:
                self._withheld(tool, verdict, ends=isinstance(decision, d.End))
            return
        if isinstance(event, e.ApprovalGiven) and event.id != verdict.id:
            self._break(f"L14: the answer about {event.id} lets {verdict.id} go")
        if not granted or not tool.pending:
            self._break(f"L14: {verdict.id} may run although nobody allowed it")
        tool.granted, tool.away = True, isinstance(verdict, d.Ask)
        self._observe("granted", {"broken": self.breakers.broken(tool, self._at)})
        self.breakers.start(tool, self._at)
        self.ledger.count("tool_calls")

    def _overdue(self, tool: _Tool, reply: d.Reply, *, ends: bool) -> None:
        """What was not in our hands did not come in time."""
        tool.outcome, tool.took, tool.away = "timed_out", 0, False
        self.breakers.learn(tool, self._at, "now")
        if ends:
            tool.runs = False
            self._observe("tool_ended", {})
        else:
            self._result(reply.id)
            self._tool_done()

    def _withheld(self, tool: _Tool, reply: d.Reply, *, ends: bool) -> None:
        broken = self.breakers.broken(tool, self._at) if reply.why == "breaker" else 0
        tool.asked, tool.runs = False, False
        self._observe("withheld", {"skips": int(reply.why == "breaker"), "broken": broken})
        self._uncount(tool)
        if reply.why in ("refused", "expired"):
            tool.outcome = "denied"
            self.breakers.learn(tool, self._at, "now")
        if ends:
            self._observe("tool_ended", {})
        else:
            self._result(reply.id)
            self._tool_done()

    def _joined(self, event: e.ToolRequested, decision: d.AnyDecision) -> None:
        """A tool of a reply that was not shown: its round begins with the first of them."""
        if not self._implied:
            self._implied, self._flying, self._tools = True, False, {}
            self._observe("settled", {})
            self._grant("tool_iterations")
            self._refused = isinstance(decision, d.Reply) and decision.why == "tool_iterations"
            if self._refused and isinstance(decision, d.Reply):
                self._observe("refused", self._about(self._plan("tool_iterations", decision.because)))
            elif not isinstance(decision, d.End) or _ends_round(decision.outcome):
                self._observe("round", self._admitted())
                self.ledger.count("tool_iterations")
        tool = _Tool(e.Proposed(event.id, event.name, event.args, registered=event.registered))
        self._tools[event.id] = tool
        if isinstance(decision, d.Execute | d.Ask):
            self._verdict(decision)
            if isinstance(decision, d.Execute):
                self._start(tool, decision)
        elif isinstance(decision, d.Reply):
            self._answered_alone(decision)
        elif isinstance(decision, d.End) and _ends_round(decision.outcome):
            for reply in decision.close:
                self._verdict(reply)
        self._grant_all()

    def _answered_alone(self, decision: d.Reply) -> None:
        self._close((decision,))
        if self._refused:
            return
        self._verdict(decision)
        if all(tool.results for tool in self._tools.values()):
            self._observe("complete", {})

    def _merged(self, event: e.ModelReplied, decision: d.AnyDecision) -> None:
        """The reply of a round that was opened by its first tool: only what is new is judged."""
        self._implied = False
        metered = any(not plan.counted and plan.resource != "wall" for plan in self.laws.plans)
        known = self.ledger.attempts[event.call, event.attempt].usage is not None
        for call in event.calls:
            if call.kind == "hosted" and (known or not metered):
                self._grant("tool_calls")
                self.ledger.count("tool_calls")
                self._observe("hosted", {})
        new = {c.id for c in event.calls if c.kind in e.AWAITED and c.id not in self._tools}
        self._tools |= {c.id: _Tool(c) for c in event.calls if c.id in new}
        ends = isinstance(decision, d.End) and _ends_round(decision.outcome)
        given = decision.verdicts if isinstance(decision, d.RunTools) else ()
        verdicts = [v for v in (decision.close if ends and isinstance(decision, d.End) else given) if v.id in new]
        replies = [v for v in verdicts if isinstance(v, d.Reply)]
        if not self._refused:
            for verdict in verdicts:
                self._verdict(verdict)
        if not ends:
            self._close(replies)
        if new and not self._refused and isinstance(decision, d.RunTools) and decision.complete:
            self._observe("complete", {})
        self._grant_all()

    def _tool_ended(self, event: e.ToolEnded, decision: d.AnyDecision) -> None:
        tool = self._tools.get(event.id)
        if tool is None or self.outcome is not None:
            return
        if event.attempt in tool.lost:
            tool.lost.remove(event.attempt)
            if event.usage is not None:
                self.ledger.tools.append(event.usage)
            return
        if self._tells_nothing(event):
            return
        if event.usage is not None:
            self.ledger.tools.append(event.usage)
        if isinstance(decision, d.Execute):
            self._retried(tool, decision)
            return
        if event.status == "deferred" and not self._stopping:
            tool.away = True
            return
        if tool.away:
            tool.started = self._at
        self._result(event.id)
        if self._stopping:
            self._observe("tool_ended", {})
            return
        tool.outcome, tool.result, tool.took = event.status, event.result, self._at - tool.started
        self.breakers.learn(tool, self._at, "now")
        if event.ends:
            self._observe("tool_ended", {})
        else:
            self._tool_done(ends=isinstance(decision, d.End))

    def _tells_nothing(self, event: e.ToolEnded) -> bool:
        """It ends nothing: its tool call has a result, or an end of that attempt."""
        tool = self._tools[event.id]
        return tool.results > 0 or 0 < event.attempt < tool.attempt or (tool.away and event.status == "deferred")

    def _retried(self, tool: _Tool, decision: d.Execute) -> None:
        granted = [r.retry.times for r in self.policy.tools if r.retry and fnmatchcase(tool.name, r.glob)]
        if not granted or tool.attempt > min(granted):
            self._break(f"L9: {decision.id} is retried more often than its rule allows")
        self._start(tool, decision)

    def _tool_done(self, *, ends: bool = False) -> None:
        self._observe("tool_ended", {})
        if all(tool.results for tool in self._tools.values()):
            self._round_learned()
            if not ends:
                self._observe("complete", {})

    def _round_learned(self) -> None:
        """The round is complete: breakers learn its outcomes in the model's order; what never ran was no probe."""
        for tool in self._tools.values():
            if tool.outcome:
                self.breakers.learn(tool, self._at, "round_end")
            else:
                self.breakers.give_back(tool)
            tool.outcome = ""
            tool.probes.clear()

    def _close(self, replies: Iterable[d.Reply]) -> None:
        for reply in replies:
            self._result(reply.id)

    def _result(self, id: str) -> None:
        tool = self._tools.get(id)
        if tool is None:
            self._break(f"L3: a result for {id}, which no reply asked for")
            return
        tool.results += 1
        if tool.results > 1:
            self._break(f"L3: a second result for the tool call {id}")

    # -- laws -----------------------------------------------------------------------------------

    def _observe(self, kind: str, fields: dict[str, int]) -> None:
        observation: Observation = (kind, fields)
        self.ghosts, broken, held = watch(self.laws, self.ghosts, *observation)
        self.held.update(held)
        for index in broken:
            check = self.laws.checks[index]
            self._break(f"{check.law}: {check.broken}")

    def _break(self, words: str) -> None:
        self.broken.append(words)

    def _named(self, decision: d.AnyDecision) -> None:
        parts: list[d.AnyDecision] = [decision]
        if isinstance(decision, d.RunTools):
            parts += decision.verdicts
        elif isinstance(decision, d.Stop | d.End):
            parts += decision.close
        if any(not part.because for part in parts) and not isinstance(decision, d.Wait):
            self._break(f"L15: a decision names no rule: {decision}")

    def _plan(self, resource: str, because: str) -> int:
        """The limit that a decision is about, by index; -1 for none."""
        found = [p.index for p in self.laws.plans if p.resource == resource and p.origin == because]
        return found[0] if found else -1

    def _about(self, index: int) -> dict[str, int]:
        if index < 0:
            return {"limit": 0, "gone": 0, "tight": 0}
        plan = self.laws.plans[index]
        left = RESERVE + 1 if plan.counted else self._state(plan)
        return {"limit": index + 1, "gone": int(left == NOTHING), "tight": int(left <= RESERVE)}

    def _grant(self, resource: str) -> None:
        """A note says that the limit was extended: it was, as soon as something of the resource did not fit."""
        names = [g.name for g in self.laws.ghosts]
        for index in list(self._grants):
            plan = self.laws.plans[index]
            if plan.resource == resource and self.ghosts[names.index(f"left_of_{plan.name}")] == 0:
                self._grants.remove(index)
                self._extend(index)

    def _grant_all(self) -> None:
        grants, self._grants = self._grants, []
        for index in grants:
            self._extend(index)

    def _extend(self, index: int) -> None:
        self._observe("extended", self._about(index))
        self.ledger.extend(self.laws.plans[index])


@dataclass(frozen=True)
class _Question:
    """A person is asked about a limit, until a time; ``reply``: the calls of a reply wait for it, not a call."""

    index: int
    until: int
    reply: bool


class _Tool:
    """A tool call of the round in hand: may it run, how often was it started, how many results has it got?"""

    def __init__(self, call: e.Proposed) -> None:
        self.call, self.runs, self.attempt, self.results = call, False, 0, 0
        self.name, self.args = call.name, call.args
        self.asks = self.asked = self.granted = self.away = False
        self.watched = call.kind != "agent"
        self.probes: set[int] = set()
        self.outcome = self.result = ""
        self.started = self.took = 0
        self.lost: set[int] = set()
        """Attempts that were given up before they had ended."""

    @property
    def pending(self) -> bool:
        """A person was asked and has not answered."""
        return self.asked and not self.granted and not self.results


_HANDOFF = ("handoff", "handed_over")

_ANSWERS = ("refused", "expired", "nobody", "breaker")


def _failed(outcome: Outcome) -> bool:
    """A failure's ladder has ended the run."""
    return (outcome.status, outcome.reason) == ("failed", "llm_failure")


def _counter(rule: ToolRule) -> str:
    """Executions that a rule's limit counts go by this name."""
    return f"executed {rule.model_dump_json(exclude={'origin'})}"


def _step_of(decision: d.AnyDecision) -> str:
    """The verb of the step of a failure's ladder that leads to this decision."""
    match decision:
        case d.Retry():
            return "retry"
        case d.Call() | d.Suspend():
            return "fallback"
        case d.Continue():
            return "finalize"
        case d.Resolve():
            return "consult" if decision.resource == "llm_failure" and not decision.maximum else "fallback"
    return "stop"


def _ends_round(outcome: Outcome) -> bool:
    """The round was admitted, but nothing of it runs and its ladders stop the run."""
    if outcome.status == "failed":
        return outcome.reason == "breaker"
    return outcome.status == "incomplete" and outcome.reason in ("tool_calls", "unknown_tools")


def _lifts(allow: str, allow_base: int, deny: str, deny_base: int) -> bool:
    return allow_base == deny_base and allow != deny and fnmatchcase(allow, deny)


def _but_for_usage(outcome: Outcome) -> tuple[object, ...]:
    return tuple(getattr(outcome, name) for name in Outcome.__struct_fields__ if name != "used")
