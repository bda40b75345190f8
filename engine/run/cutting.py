"""The end of an effect that did not end by itself: it was cancelled, or its time was over. What is reported of it."""

from __future__ import annotations

from collections.abc import Callable

from engine.core import events as e
from engine.core.decisions import Note
from engine.run import approvals, calls, executions
from engine.run.deadlines import Cut, Cutting
from engine.run.effects import Approval, ResolverRun
from engine.run.flight import Flight
from engine.run.timers import Clock


class Cuts:
    """See the module; for one run. ``above`` tells the wall of a run above, if that is what ends an effect."""

    def __init__(
        self, deadlines: Cutting, clock: Clock, note: Callable[[Note], None], above: Callable[[Flight], Cut | None]
    ) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._note = note
        self._above = above

    def made(self, flight: Flight, status: str) -> e.AnyEvent:
        """The end of an effect that did not end by itself: ``cancelled`` or ``timed_out``."""
        work, timed_out = flight.work, status == "timed_out"
        if isinstance(work, executions.Execution):
            return self._overdue(work, flight) if timed_out else work.cut()
        if isinstance(work, calls.Attempt):
            if not timed_out:
                return work.failed("aborted", "cancelled")
            by = self._deadlines.of_attempt(flight.decided, flight.deadline, self._above(flight))
            call = work.effect.decision
            text = f"call {call.call} to {call.client} got no answer in time ({by.text})"
            self._note(Note("warn", text, because=by.because))
            return work.failed("timeout", f"no answer in time ({by})")
        effect = flight.effect
        if isinstance(effect, Approval):
            return approvals.answer_event(effect.request, "refused", self._clock())
        name = effect.decision.name if isinstance(effect, ResolverRun) else ""
        if timed_out:
            self._note(Note("warn", f"resolver `{name}` did not answer in time"))
        return e.Resolved(self._clock(), name, "timed_out" if timed_out else "failed")

    def _overdue(self, work: executions.Execution, flight: Flight) -> e.ToolEnded:
        name = work.context.name
        by = self._deadlines.of_tool(name, flight.decided, flight.deadline, self._above(flight))
        if by is not None:
            self._note(Note("warn", f"tool `{name}` took too long ({by.text})", because=by.because))
        return work.timed_out(by)
