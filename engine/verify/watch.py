"""The laws watching a real run: its events and decisions become the observations that ``laws`` is about.

Nothing of the state is read. Besides the shared laws, what only a real run shows is checked here:
each tool call has exactly one result (L3), what the outcome says was used is what was seen (L10),
and every decision names the rule behind it (L15).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.plan import Plan
from engine.core.state import Outcome
from engine.verify.round_sight import RoundSight

_ADMITTED: dict[type[d.AnyDecision], str] = {
    d.Call: "a call is admitted",
    d.Retry: "a further attempt is decided on",
    d.Execute: "a tool starts",
    d.Ask: "a person is asked",
    d.Suspend: "a person is asked",
    d.Resolve: "the host's function is asked",
    d.Spawn: "a child is spawned",
    d.Queue: "a child is spawned",
}
"""What lets a run go on, by the decision that does."""


class Watch(RoundSight):
    """Give it every event with its decision, in order; ``broken`` says in words which laws do not hold."""

    def see(self, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        """One more step of the run."""
        if isinstance(decision, d.Illegal):
            return
        if not self._ignored(event, decision):
            self._at = max(self._at, event.at)
            if self._paused is not None:
                self.ledger.stand(self._at - self._paused)
                self._paused = self._at
        over = self._stopping or self.outcome is not None
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
        if over:
            self._nothing_more(decision)
        self._finish(decision)
        if not self._only_people():
            self._paused = None
        elif self._paused is None:
            self._paused = self._at

    def _nothing_more(self, decision: d.AnyDecision) -> None:
        """The run had ended, or was stopping, before this was decided: so nothing may be admitted by it."""
        parts = (decision, *(decision.verdicts if isinstance(decision, d.RunTools) else ()))
        what = next((_ADMITTED[type(part)] for part in parts if type(part) in _ADMITTED), "")
        words = f"L4: {what} after the end, or while the run is stopping"
        if what and words not in self.broken:
            self._break(words)

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
        if hit is None:  # a tree should say whose limit it is, and this one has not
            return outcome.because == "default: ancestor"
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
        if not self._given_up(decision):
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
            self._overdrawn(plan)
        else:
            self._moved_on(plan.index)
        told = next(n for n in decision.notes if n.kind in ("granted", "withheld"))
        if (told.kind == "granted", told.maximum) != (granted, self.ledger.maximum(plan)):
            self._break(f"L1: {plan.limit.id} is {told.maximum} by now, seen was {self.ledger.maximum(plan)}")
        if question.reply:
            self._proposed(decision)
        elif not self._given_up(decision):
            self._called(decision)

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

    def _named(self, decision: d.AnyDecision) -> None:
        parts: list[d.AnyDecision] = [decision]
        if isinstance(decision, d.RunTools):
            parts += decision.verdicts
        elif isinstance(decision, d.Stop | d.End):
            parts += decision.close
        if any(not part.because for part in parts) and not isinstance(decision, d.Wait):
            self._break(f"L15: a decision names no rule: {decision}")


def _but_for_usage(outcome: Outcome) -> tuple[object, ...]:
    return tuple(getattr(outcome, name) for name in Outcome.__struct_fields__ if name != "used")
