"""Rounds as an outsider sees them: replies, and tools whose reply is shown later or never."""

from __future__ import annotations

from collections.abc import Iterable

from engine.core import decisions as d
from engine.core import events as e
from engine.core.state import Outcome
from engine.verify.failure_sight import FailureSight
from engine.verify.sight import Tool
from engine.verify.tool_sight import HANDOFF


class RoundSight(FailureSight):
    """See the module."""

    def _replied(self, event: e.ModelReplied, decision: d.AnyDecision) -> None:
        unmetered = isinstance(decision, d.End) and decision.outcome.reason == "usage_unknown"
        for call in event.calls:
            if call.kind == "hosted" and not unmetered:
                self._grant("tool_calls")
                self.ledger.count("tool_calls")
                self._observe("hosted", {})
        functions = [c for c in event.calls if c.kind in e.AWAITED]
        self._tools = {c.id: Tool(c) for c in functions}
        if functions:
            self._proposed(decision)
        self._grant_all()

    def _proposed(self, decision: d.AnyDecision) -> None:
        """What is decided about the calls of a reply, as they come or once a person has answered."""
        if isinstance(decision, d.Suspend) and decision.requests and decision.requests[0].kind == "extension":
            if decision.requests[0].resource in ("tool_iterations", "tool_calls", "unknown_tools"):
                self._questioned(decision, reply=True)
        elif isinstance(decision, d.Resolve):
            self._grant_all()
            self._resolve = decision
            self._observe("refused", self._about(self._plan(decision.resource, decision.because)))
        elif isinstance(decision, d.RunTools):
            self._round(decision.verdicts, complete=decision.complete)
        elif isinstance(decision, d.End) and ends_round(decision.outcome):
            self._round(decision.close, complete=False, ends=True)
        self._grant_all()

    def _round(self, verdicts: Iterable[d.Execute | d.Ask | d.Reply], *, complete: bool, ends: bool = False) -> None:
        """The verdicts on a round; where it ends the run, they are stored with its end."""
        self._grant("tool_iterations")
        verdicts = tuple(verdicts)
        if complete and all(isinstance(v, d.Reply) and v.why in HANDOFF for v in verdicts):
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

    def _joined(self, event: e.ToolRequested, decision: d.AnyDecision) -> None:
        """A tool of a reply that was not shown: its round begins with the first of them."""
        if not self._implied:
            self._implied, self._flying, self._tools = True, False, {}
            self._observe("settled", {})
            self._grant("tool_iterations")
            self._refused = isinstance(decision, d.Reply) and decision.why == "tool_iterations"
            if self._refused and isinstance(decision, d.Reply):
                self._observe("refused", self._about(self._plan("tool_iterations", decision.because)))
            elif not isinstance(decision, d.End) or ends_round(decision.outcome):
                self._observe("round", self._admitted())
                self.ledger.count("tool_iterations")
        tool = Tool(e.Proposed(event.id, event.name, event.args, registered=event.registered))
        self._tools[event.id] = tool
        if isinstance(decision, d.Execute | d.Ask):
            self._verdict(decision)
            if isinstance(decision, d.Execute):
                self._start(tool, decision)
        elif isinstance(decision, d.Reply):
            self._answered_alone(decision)
        elif isinstance(decision, d.End) and ends_round(decision.outcome):
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
        self._tools |= {c.id: Tool(c) for c in event.calls if c.id in new}
        ends = isinstance(decision, d.End) and ends_round(decision.outcome)
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

    def _answered_by_host(self, ids: Iterable[str], decision: d.AnyDecision) -> None:
        ends = isinstance(decision, d.End) and ends_round(decision.outcome)
        for id in ids:
            tool = self._tools.get(id)
            if tool is not None and not tool.results:
                self._result(id)
                self._tool_done(ends=ends)


def ends_round(outcome: Outcome) -> bool:
    """The round was admitted, but nothing of it runs and its ladders stop the run."""
    if outcome.status == "failed":
        return outcome.reason == "breaker"
    return outcome.status == "incomplete" and outcome.reason in ("tool_calls", "unknown_tools")
