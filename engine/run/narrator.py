"""Telling a run: events, decisions and effects of the core turned into the events of a stream.

Nothing is decided here. What was told before a crash is not told again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.core import decisions as d
from engine.core import draws
from engine.core import events as e
from engine.core.core import Core
from engine.core.decisions import AnyDecision, Note
from engine.core.ledger import Ledger
from engine.core.messages import Message
from engine.core.state import State
from engine.core.vocabulary import RESOURCES
from engine.run.effects import Approval, Effect, ModelCall, ToolRun
from engine.run.streaming import (
    AnyStreamEvent,
    ApprovalAnswered,
    ApprovalAsked,
    Budget,
    CallEnded,
    CallStarted,
    Noted,
    RetryPlanned,
    TextDelta,
    TextRetracted,
    ToolFinished,
    ToolRefused,
    ToolRetryPlanned,
    ToolStarted,
)

SHARED: Final = ("subtree", "thread")
"""Scopes of limits that count what runs below use too."""


class Narrator:
    """Turns what happens to a run into stream events and hands them to ``emit``.

    ``pools``: tell where the limits stand that the run shares with those below it; what runs a tree knows it better.
    """

    streams = True

    def __init__(
        self,
        core: Core,
        get: Callable[[str], Message],
        emit: Callable[[AnyStreamEvent], None],
        *,
        pools: bool = True,
    ) -> None:
        self._plans = [
            plan
            for plan in core.plans
            if pools or plan.resource not in draws.RESOURCES or plan.limit.scope not in SHARED
        ]
        self._core = core
        self._get = get
        self._emit = emit
        self._names: dict[str, str] = {}
        self._budgets: dict[int, tuple[int, int]] = {}
        self._shown: ModelCall | None = None
        """The attempt whose text is on show and not yet accepted."""

    def replayed(self, event: e.AnyEvent, state: State) -> None:
        """An event of the journal of a run that is being resumed: not told again, only where the budgets stand."""
        if isinstance(event, e.ModelReplied):
            self._names.update((p.id, p.name) for p in event.calls)
        self._stand(state, event.at)

    def decided(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        self._happened(event, decision)
        if self._shown is not None:
            self._kept_or_retracted(event, decision, state)
        if isinstance(decision, d.RunTools):
            for verdict in decision.verdicts:
                if isinstance(verdict, d.Reply):
                    self._refused(verdict)
        elif isinstance(decision, d.Reply):
            self._refused(decision)
        elif isinstance(decision, d.Retry):
            self._retry(event, decision)
        elif isinstance(decision, d.Stop | d.End):
            for reply in decision.close:
                self._refused(reply)
        for note in decision.notes:
            if note.kind != "retry":  # told above
                self._emit(Noted(note))
        self._stand(state, event.at)

    def started(self, effect: Effect) -> None:
        if isinstance(effect, ModelCall):
            call = effect.decision
            self._emit(CallStarted(call.call, call.attempt, call.client, call.final, call.why, call.because))
        elif isinstance(effect, ToolRun):
            self._emit(ToolStarted(effect.decision.id, effect.call.name, effect.call.arguments))
        elif isinstance(effect, Approval):
            self._emit(_asked(effect))

    def delta(self, effect: ModelCall, text: str) -> None:
        self._shown = effect
        self._emit(TextDelta(effect.decision.call, effect.decision.attempt, text))

    def over(self) -> None:
        """Whoever drives the run ends the stream."""

    def noted(self, note: Note) -> None:
        self._emit(Noted(note))

    def _happened(self, event: e.AnyEvent, decision: AnyDecision) -> None:
        if isinstance(event, e.ModelReplied):
            message = self._get(event.ref)
            self._names.update((p.id, p.name) for p in event.calls)
            tools = tuple(p.name for p in event.calls)
            self._emit(CallEnded(event.call, event.attempt, message.text, tools, event.usage))
        elif isinstance(event, e.ModelFailed):
            content = self._get(event.ref) if event.ref else Message("assistant")
            said = (content.opaque or {}).get("error", "")
            self._emit(CallEnded(event.call, event.attempt, content.text, (), event.usage, event.reason, said))
        elif isinstance(event, e.ToolEnded):
            text, name = self._get(event.ref).text if event.ref else "", self._names.get(event.id, "")
            if isinstance(decision, d.Execute):
                due, attempt, because = decision.not_before, decision.attempt, decision.because
                wait = max(due - event.at, 0)
                self._emit(ToolRetryPlanned(event.id, name, attempt, due, wait, event.status, text, because))
            else:
                self._emit(ToolFinished(event.id, name, event.status, text))
        elif isinstance(event, e.ApprovalGiven):
            edited = self._get(event.ref).text if event.ref else ""
            self._emit(ApprovalAnswered(event.id, self._names.get(event.id, ""), event.answer, edited))
        elif isinstance(event, e.ExtensionAnswered):
            self._emit(ApprovalAnswered(event.id, "", event.answer, amount=event.amount))

    def _kept_or_retracted(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        """Text on show stays if its reply is accepted, or the run ends with it; else it is taken back."""
        shown = self._shown
        if shown is None or isinstance(decision, d.Wait):
            return
        consulted = isinstance(decision, d.Resolve) and state.call is not None and state.call.failure is not None
        if consulted:
            return  # its failure is still open
        accepted = isinstance(event, e.ModelReplied) and not (
            isinstance(decision, d.Call) or (isinstance(decision, d.Retry) and event.finish != "pause")
        )
        self._shown = None
        if not accepted and not isinstance(decision, d.End | d.Stop):
            self._emit(TextRetracted(shown.decision.call, shown.decision.attempt))

    def _retry(self, event: e.AnyEvent, decision: d.Retry) -> None:
        note = next((note for note in decision.notes if note.kind == "retry"), None)
        reason = note.text.rpartition(": ")[2] if note else ""
        retry, of = (note.used, note.maximum) if note else (0, 0)
        wait = max(decision.not_before - event.at, 0)
        due = decision.not_before
        self._emit(RetryPlanned(decision.call, decision.attempt, due, wait, reason, retry, of, decision.because))

    def _refused(self, reply: d.Reply) -> None:
        text = self._get(reply.ref).text if reply.ref else reply.text
        self._emit(ToolRefused(reply.id, self._names.get(reply.id, ""), text, reply.why, reply.because))

    def _stand(self, state: State, at: int) -> None:
        core = self._core
        for plan in self._plans:
            used, maximum = core.standing(plan, state.vars, state.book, at)
            if self._budgets.get(plan.index) != (used, maximum):
                self._budgets[plan.index] = (used, maximum)
                unit = RESOURCES[plan.resource].unit
                self._emit(Budget(plan.limit.id, plan.resource, unit, used, maximum))


def _asked(effect: Approval) -> ApprovalAsked:
    request, call = effect.request, effect.call
    name, arguments = (call.name, call.arguments) if call else ("", "")
    return ApprovalAsked(request.id, name, arguments, request.until, effect.because, request)


class SharedPools:
    """Tells whoever follows a tree where the limits stand that all of it shares, whenever that has changed."""

    def __init__(self, ledger: Ledger, root: str, told: Callable[[Budget], None] | None) -> None:
        self._ledger = ledger
        self._root = root
        self._follower = told
        self._last: dict[str, tuple[int, int]] = {}
        """Where they stood when it was told, by the names of the limits."""

    def tell(self) -> None:
        """Something may have changed."""
        follower = self._follower
        if follower is None or self._root not in self._ledger.nodes:
            return
        for pool in self._ledger.nodes[self._root].pools:
            limit, resource = pool.ceiling.limit, pool.ceiling.resource
            if pool.shared and pool.ceiling.scope in SHARED and self._last.get(limit) != (pool.used, pool.maximum):
                self._last[limit] = pool.used, pool.maximum
                follower(Budget(limit, resource, RESOURCES[resource].unit, pool.used, pool.maximum))
