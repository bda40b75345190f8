"""Tool calls as an outsider sees them: verdicts, starts, ends, and what people say about them."""

from __future__ import annotations

from fnmatch import fnmatchcase

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import ToolRule
from engine.verify.sight import Sight, Tool

HANDOFF = ("handoff", "handed_over")
ANSWERS = ("refused", "expired", "nobody", "breaker")


class ToolSight(Sight):
    """See the module."""

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
        if verdict.why in HANDOFF:
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

    def _faults(self, tool: Tool) -> dict[str, int]:
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

    def _start(self, tool: Tool, decision: d.Execute) -> None:
        """An attempt begins; at the first one a breaker that acts at once may have opened since the verdict."""
        at, broken = max(self._at, decision.not_before), 0
        if not tool.attempt:
            broken = self.breakers.broken(tool, self._at, "now")
            self.breakers.start(tool, self._at)
            tool.started = self._at
        tool.attempt = decision.attempt
        late = int(self.ledger.late(at) or decision.deadline <= at)
        self._observe("start", {"late": late, "broken": broken, "ungranted": int(tool.asks and not tool.granted)})

    def _uncount(self, tool: Tool) -> None:
        for rule in self.policy.tools:
            if rule.limit is not None and fnmatchcase(tool.name, rule.glob):
                self.ledger.counts[_counter(rule)] -= 1

    def _answered_instead(self, tool: Tool, id: str, decision: d.AnyDecision) -> None:
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

    def _retried(self, tool: Tool, decision: d.Execute) -> None:
        granted = [r.retry.times for r in self.policy.tools if r.retry and fnmatchcase(tool.name, r.glob)]
        if not granted or tool.attempt > min(granted):
            self._break(f"L9: {decision.id} is retried more often than its rule allows")
        self._start(tool, decision)

    def _approval(self, event: e.ApprovalGiven | e.Tick, decision: d.AnyDecision) -> None:
        """A person has answered about a call, or did not in time: it may run, or gets a result that says why not."""
        if isinstance(decision, d.RunTools):
            (verdict,) = decision.verdicts
        else:
            closed = decision.close if isinstance(decision, d.End) else ()
            known = [r for r in closed if r.id in self._tools and not self._tools[r.id].results]
            answers = [r for r in known if r.why in ANSWERS and self._tools[r.id].pending]
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

    def _overdue(self, tool: Tool, reply: d.Reply, *, ends: bool) -> None:
        """What was not in our hands did not come in time."""
        tool.outcome, tool.took, tool.away = "timed_out", 0, False
        self.breakers.learn(tool, self._at, "now")
        if ends:
            tool.runs = False
            self._observe("tool_ended", {})
        else:
            self._result(reply.id)
            self._tool_done()

    def _withheld(self, tool: Tool, reply: d.Reply, *, ends: bool) -> None:
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


def _counter(rule: ToolRule) -> str:
    """Executions that a rule's limit counts go by this name."""
    return f"executed {rule.model_dump_json(exclude={'origin'})}"


def _lifts(allow: str, allow_base: int, deny: str, deny_base: int) -> bool:
    return allow_base == deny_base and allow != deny and fnmatchcase(allow, deny)
