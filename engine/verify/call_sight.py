"""Model calls as an outsider sees them, and what is asked about limits before them."""

from __future__ import annotations

from msgspec import structs

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.plan import NOTHING
from engine.core.policy import Consult
from engine.core.state import EARLIER_ATTEMPTS, NO_TIME
from engine.verify.ledger import Attempt
from engine.verify.sight import Question
from engine.verify.tool_sight import ToolSight


class CallSight(ToolSight):
    """See the module."""

    def _next_call(self, event: e.CallRequested, decision: d.AnyDecision) -> None:
        missing = [id for id, tool in self._tools.items() if not tool.results]
        if missing and isinstance(decision, d.Call | d.Resolve):
            self._break(f"L3: a call is admitted while {missing} have no result")
        self._request, self._attempt, self._falls, self._awaited = event, 0, False, None
        for note in decision.notes:
            if note.kind == "switched":
                used = [t.client for t in self.policy.thresholds if t.client and f" {t.client} " in note.text]
                self.clients.other, self.clients.until = used[0] or "", NO_TIME
        self.clients.requested(event.client, self._at)
        self._implied = self._refused = False
        if not isinstance(decision, d.End):
            self._tools = {}

    def _call(self, decision: d.Call) -> None:
        kind = "call" if decision.attempt == 1 else "attempt"
        if self._falls and decision.attempt == 1:
            self._request, self._attempt = structs.replace(self._request, call=decision.call), 0
        if decision.client != self.clients.now:
            self._break(f"L13: call {decision.call} goes to {decision.client}, not to {self.clients.now}")
        self._falls, self._awaited, request = False, None, self._request
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

    def _questioned(self, decision: d.Suspend, *, reply: bool) -> None:
        self._grant_all()
        (request,) = decision.requests
        index = next(p.index for p in self.laws.plans if p.limit.id == request.id)
        self._question = Question(index, request.until, reply)
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

    def _consulting(self, index: int) -> bool:
        """Does the ladder of the limit stand at a consultant?"""
        steps = self.laws.plans[index].steps
        place = self.ledger.places.get(index, 0)
        return place < len(steps) and isinstance(steps[place], Consult)
