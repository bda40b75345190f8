"""Failures as an outsider sees them: which step of a ladder a decision is, and whether it was its turn."""

from __future__ import annotations

from dataclasses import replace

from engine.core import decisions as d
from engine.core import events as e
from engine.core.machine.plan import NOTHING
from engine.core.policy import Consult, Fallback, Retry
from engine.core.state import NO_TIME, Outcome
from engine.verify.call_sight import CallSight
from engine.verify.failures import LAST, Failed


class FailureSight(CallSight):
    """See the module."""

    def _failure(self, event: e.ModelReplied | e.ModelFailed, decision: d.AnyDecision) -> Failed | None:
        """The failure whose ladder decided, if one did."""
        if isinstance(decision, d.End) and not by_ladder(decision.outcome):
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

    def _laddered(self, failed: Failed, decision: d.AnyDecision) -> None:
        """The decision is a step of the failure's ladder; which one is worked out from what could be taken."""
        plan = self.ladders.of(failed.reason)
        self._failed = None
        if plan is None:
            if not isinstance(decision, d.End):
                self._break(f"F3: {failed.reason} has no ladder, but the run goes on")
            return
        possible = self.ladders.possible(plan, failed, self.clients, self._at, self._deadline())
        kind = step_of(decision)
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
            self._awaited = (
                None if isinstance(decision, d.Call) else (replace(failed, start=place + 1), self.clients.copy())
            )
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
        if isinstance(decision, d.End) and not by_ladder(decision.outcome):
            return
        if isinstance(decision, d.Retry):
            self._observe("retry", {"pause": 1})
        self._laddered(chosen, decision)

    def _given_up(self, decision: d.AnyDecision) -> bool:
        """Was a fallback that waited for an answer not admitted, and the next step of its ladder taken instead?"""
        if self._awaited is None:
            return False
        other = any(note.kind == "fallback" for note in decision.notes)
        consulted = isinstance(decision, d.Resolve) and step_of(decision) == "consult"
        if not (other or consulted or isinstance(decision, d.Retry | d.Continue | d.End)):
            return False
        (failed, self.clients), self._awaited, self._falls = self._awaited, None, False
        self._grant_all()
        if isinstance(decision, d.Retry):
            self._observe("retry", {"pause": 1})
        if not isinstance(decision, d.End) or by_ladder(decision.outcome):
            self._laddered(failed, decision)
        return True


def by_ladder(outcome: Outcome) -> bool:
    """A failure's ladder has ended the run."""
    return (outcome.status, outcome.reason) == ("failed", "llm_failure")


def step_of(decision: d.AnyDecision) -> str:
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
