"""The laws watching a real run: its events and decisions become the observations that ``laws`` is about.

Nothing of the state is read. Besides the shared laws, what only a real run shows is checked here:
each tool call has exactly one result (L3), what the outcome says was used is what was seen (L10),
and every decision names the rule behind it (L15).
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.plan import NOTHING, Plan
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.state import Outcome
from engine.verify.ledger import Attempt
from engine.verify.sightings import Sightings, Tool


class Watch(Sightings):
    """Give it every event with its decision, in order; ``broken`` says in words which laws do not hold."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.outcome: Outcome | None = None
        self._begun = False
        self._stopping = False
        self._attempt = 0
        self._flying = False
        self._last = ("", 0)
        self._rounds = True
        self._implied = False
        self._refused = False
        self._resolve: d.Resolve | None = None

    def see(self, event: e.AnyEvent, decision: d.AnyDecision) -> None:
        """One more step of the run."""
        if isinstance(decision, d.Illegal):
            return
        if not self._ignored(event, decision):
            self._at = max(self._at, event.at)
        self._named(decision)
        self._grants = [self._plan(n.resource, n.because) for n in decision.notes if n.kind == "extended"]
        if isinstance(event, e.RunStarted):
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
        self._finish(decision)

    def _ignored(self, event: e.AnyEvent, decision: d.AnyDecision) -> bool:
        """A report that came too late moves nothing, not even the clock."""
        if not isinstance(decision, d.Wait):
            return False
        if isinstance(event, e.ToolEnded):
            tool = self._tools.get(event.id)
            return tool is None or tool.results > 0 or event.attempt < tool.attempt
        if isinstance(event, e.UsageReported | e.ModelReplied | e.ModelFailed):
            return event.usage is None or (event.call, event.attempt) != self._last
        return False

    # -- the run as a whole ---------------------------------------------------------------------

    def _started(self, event: e.RunStarted, decision: d.AnyDecision) -> None:
        if self._begun:
            return
        self._begun = True
        self._rounds = "rounds" in event.profile
        self.ledger.started = event.at
        used = event.thread_used
        if used is not None:
            self.ledger.earlier = used
        threads = [p for p in self.laws.plans if p.counted and p.limit.scope == "thread"]
        earlier = {f"earlier_{p.name}": getattr(self.ledger.earlier, p.resource) for p in threads}
        if isinstance(decision, d.Continue):
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
            if tool is not None and tool.runs and (not tool.attempt or reply.why == "timed_out"):
                tool.runs = False
                self._observe("tool_ended", {})

    def _ended(self, outcome: Outcome) -> None:
        self.outcome = outcome
        about = {"limit": 0, "gone": 0, "tight": 0}
        if outcome.status == "incomplete" and not self._stopping:
            plan = self._limit(outcome)
            about = self._about(plan.index)
            if outcome.limit is not None and outcome.limit.used < outcome.limit.maximum and plan.resource == "wall":
                self._break("F2: the run ends before its time is over")
        self._observe("end", about)
        for id, tool in self._tools.items():
            if not tool.results:
                self._break(f"L3: the tool call {id} has no result at the end")

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
            self._resolved(event, decision)
        self._grant_all()
        if isinstance(decision, d.Call):
            self._call(decision)
        elif isinstance(decision, d.Resolve):
            self._resolve, self._last = decision, ("", 0)

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
        self._request, self._attempt = event, 0
        self._implied = self._refused = False
        if not isinstance(decision, d.End):
            self._tools = {}

    def _resolved(self, event: e.Resolved, decision: d.AnyDecision) -> None:
        resolve, self._resolve = self._resolve, None
        assert resolve is not None
        if isinstance(decision, d.RunTools):
            self._close([v for v in decision.verdicts if isinstance(v, d.Reply)])
        elif event.status in ("failed", "timed_out"):
            index = self._plan(resolve.resource, resolve.because)
            if index >= 0:
                self.ledger.places[index] = self.ledger.places.get(index, 0) + 1
                self._observe("unresolved", self._about(index))

    def _call(self, decision: d.Call) -> None:
        kind = "call" if decision.attempt == 1 else "attempt"
        request = self._request
        if decision.call != request.call or decision.attempt != self._attempt + 1:
            self._break(f"L4: attempt {decision.attempt} of call {decision.call} is out of turn")
        if decision.deadline <= self._at and not self.ledger.late(self._at) and decision.final:
            self._break("L8: the final call has no time")
        states = {p.index: self._state(p) for p in self.laws.plans if not p.counted}
        walls = [p.index for p in self.laws.plans if p.resource == "wall"]
        why = 1 + self._plan(decision.why, decision.because) if decision.final else 0
        fields = {
            "final": int(decision.final),
            "why": why,
            "late": int(any(states[i] == NOTHING for i in walls)),
            "spent": int(any(s == NOTHING for i, s in states.items() if i not in walls)),
        }
        fields |= {p.field: states[p.index] for p in self.laws.plans if not p.counted}
        self._observe(kind, fields)
        self.ledger.count("llm_attempts")
        if kind == "call":
            self.ledger.count("llm_calls")
        self._attempt, self._flying = decision.attempt, True
        self._last = decision.call, decision.attempt
        self.ledger.attempts[decision.call, decision.attempt] = Attempt(request.model)

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
            pause = isinstance(event, e.ModelReplied) and event.finish == "pause"
            self._observe("retry", {"pause": int(pause)})

    def _usage(self, call: str, attempt: int, usage: Usage) -> None:
        known = self.ledger.attempts.get((call, attempt))
        # The core keeps what was charged for the last attempt alone: reports about earlier ones come too late.
        if known is not None and (call, attempt) == self._last:
            known.report(usage)

    # -- rounds ---------------------------------------------------------------------------------

    def _replied(self, event: e.ModelReplied, decision: d.AnyDecision) -> None:
        unmetered = isinstance(decision, d.End) and decision.outcome.reason == "usage_unknown"
        for call in event.calls:
            if call.kind == "hosted" and not unmetered:
                self._grant("tool_calls")
                self.ledger.count("tool_calls")
                self._observe("hosted", {})
        functions = [c for c in event.calls if c.kind == "function"]
        self._tools = {c.id: Tool(c) for c in functions}
        if isinstance(decision, d.Resolve):
            self._grant_all()
            self._resolve = decision
            self._observe("refused", self._about(self._plan(decision.resource, decision.because)))
        elif isinstance(decision, d.RunTools):
            self._round(decision.verdicts, complete=decision.complete)
        elif isinstance(decision, d.End) and functions and _ends_round(decision.outcome):
            self._round(decision.close, complete=False, ends=True)
        self._grant_all()

    def _round(self, verdicts: Iterable[d.Execute | d.Ask | d.Reply], *, complete: bool, ends: bool = False) -> None:
        """The verdicts on a round; where it ends the run, they are stored with its end."""
        self._grant("tool_iterations")
        verdicts = tuple(verdicts)
        if complete and all(isinstance(v, d.Reply) and v.why == "tool_iterations" for v in verdicts):
            first = verdicts[0]
            self._observe("refused", self._about(self._plan("tool_iterations", first.because)))
            self._close([v for v in verdicts if isinstance(v, d.Reply)])
            return
        self._observe("round", {"late": int(self.ledger.late(self._at))})
        self.ledger.count("tool_iterations")
        for verdict in verdicts:
            self._verdict(verdict)
        if not ends:
            self._close([v for v in verdicts if isinstance(v, d.Reply)])
        self._grant_all()
        if complete:
            self._observe("complete", {})

    def _verdict(self, verdict: d.Execute | d.Ask | d.Reply) -> None:
        tool = self._tools[verdict.id]
        if isinstance(verdict, d.Execute):
            self._grant("tool_calls")
            self.ledger.count("tool_calls")
            tool.runs = True
            self._observe("execute", self._faults(tool.call))
            return
        unknown = int(verdict.why == "unknown_tool")
        if unknown:
            self._grant("unknown_tools")
            self.ledger.count("unknown_tools")
        elif verdict.why == "tool_calls":
            self._grant("tool_calls")
        resource = {"unknown_tool": "unknown_tools", "tool_calls": "tool_calls"}.get(verdict.why, "")
        self._observe("replied", {"limit": 1 + self._plan(resource, verdict.because), "unknown": unknown})

    def _tool_requested(self, event: e.ToolRequested, decision: d.AnyDecision) -> None:
        tool = self._tools.get(event.id)
        if tool is None:
            if not self._stopping and self.outcome is None:
                self._joined(event, decision)
            return
        if isinstance(decision, d.Execute):
            if decision.attempt != tool.attempt + 1:
                self._break(f"L3: attempt {decision.attempt} of tool call {event.id} is out of turn")
            tool.attempt = decision.attempt
            self._observe("start", {"late": int(self.ledger.late(self._at) or decision.deadline <= self._at)})
        elif isinstance(decision, d.Reply) and not tool.results:
            self._result(event.id)
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
                self._observe("round", {"late": int(self.ledger.late(self._at))})
                self.ledger.count("tool_iterations")
        self._tools[event.id] = Tool(e.Proposed(event.id, event.name, registered=event.registered))
        if isinstance(decision, d.Execute):
            self._verdict(decision)
            self._tools[event.id].attempt = decision.attempt
            self._observe("start", {"late": int(self.ledger.late(self._at) or decision.deadline <= self._at)})
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
        for call in event.calls:
            if call.kind == "hosted":
                self._grant("tool_calls")
                self.ledger.count("tool_calls")
                self._observe("hosted", {})
        new = {c.id for c in event.calls if c.kind == "function" and c.id not in self._tools}
        self._tools |= {c.id: Tool(c) for c in event.calls if c.id in new}
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
        if tool is None or tool.results or event.attempt < tool.attempt or self.outcome is not None:
            return
        self._result(event.id)
        if event.usage is not None:
            self.ledger.tools.append(event.usage)
        if self._stopping:
            self._observe("tool_ended", {})
            return
        if event.ends:
            self._observe("tool_ended", {})
        else:
            self._tool_done(ends=isinstance(decision, d.End))

    def _tool_done(self, *, ends: bool = False) -> None:
        self._observe("tool_ended", {})
        if not ends and all(tool.results for tool in self._tools.values()):
            self._observe("complete", {})

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


def _ends_round(outcome: Outcome) -> bool:
    """The round was admitted, but nothing of it runs and its ladders stop the run."""
    return outcome.status == "incomplete" and outcome.reason in ("tool_calls", "unknown_tools")


def _but_for_usage(outcome: Outcome) -> tuple[object, ...]:
    return tuple(getattr(outcome, name) for name in Outcome.__struct_fields__ if name != "used")
