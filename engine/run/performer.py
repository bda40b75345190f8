"""What one run's effects consist of: attempts at a model, executions of tools, questions to functions and to people.

Knows how each is carried out and what event is its end; nothing of when it starts, or of what cuts it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from engine.core import events as e
from engine.core.decisions import Note
from engine.core.messages import Message
from engine.core.transcript import Transcript, messages
from engine.run import approvals, calls, executions, resolvers
from engine.run.approvals import Later
from engine.run.contents import Contents
from engine.run.effects import Approval, Effect, ModelCall, ResolverRun, RunSpec, ToolRun
from engine.run.flight import Work
from engine.run.host import Host
from engine.run.timers import Clock


class Performer:
    """See the module. ``note`` gets what goes wrong on the host's side; ``prepared`` are arguments, checked already."""

    def __init__(
        self, host: Host, spec: RunSpec, contents: Contents, clock: Clock, note: Callable[[Note], None]
    ) -> None:
        self._host = host
        self._spec = spec
        self._put, self._get = contents.put, contents.get
        self._clock = clock
        self._note = note
        self._said: list[Message] = []
        self.prepared: dict[str, dict[str, Any]] = {}

    def conversation(self, transcript: Transcript) -> tuple[Message, ...]:
        """The messages of a transcript, of which each call makes only the new ones."""
        said = self._said
        if added := transcript.entries(len(said)):
            said += messages(added, self._get, said)
        return tuple(said)

    def attempt(self, effect: ModelCall, show: Callable[[str], None] | None) -> calls.Attempt:
        """An attempt at a model; ``show`` gets each piece of its text."""
        return calls.Attempt(effect, self._spec.run, self._spec.thread, self._clock, self._put, show)

    def execution(self, effect: ToolRun) -> executions.Execution:
        """An execution of a tool."""
        return executions.Execution(effect, self._spec.run, self._clock, self._put)

    def perform(self, effect: Effect, work: Work) -> Coroutine[Any, Any, e.AnyEvent]:
        """Carry an effect out, to the event that is its end. Raises ``Later`` where a person does not answer now."""
        if isinstance(work, calls.Attempt):
            return self._call(work)
        if isinstance(work, executions.Execution):
            return executions.run_tool(self._host, work, self.prepared.pop(work.context.id, None))
        if isinstance(effect, Approval):
            return self._approve(effect)
        assert isinstance(effect, ResolverRun)
        return self._ask(effect)

    def nobody(self, effect: Approval) -> e.AnyEvent:
        """The end of a question that nobody can be asked."""
        if effect.request.kind == "external":
            text = f"The result of this call of `{effect.request.tool}` cannot be waited for: there is no journal."
            assert effect.call is not None
            ref = self._put(Message("tool", text, tool_call_id=effect.call.id, is_error=True))
            return e.ToolEnded(self._clock(), effect.request.id, 0, "failed", ref=ref)
        return approvals.answer_event(effect.request, "nobody", self._clock())

    def _call(self, attempt: calls.Attempt) -> Coroutine[Any, Any, e.AnyEvent]:
        decision = attempt.effect.decision
        instruction = None
        if decision.instruction_ref:
            instruction = self._get(decision.instruction_ref)
        elif decision.instruction:
            instruction = Message("user", decision.instruction)
        said = self.conversation(attempt.effect.transcript)
        self.prepared.clear()
        return calls.call_model(self._host, attempt, said, instruction, self.prepared)

    async def _ask(self, effect: ResolverRun) -> e.AnyEvent:
        decision, spec = effect.decision, self._spec
        said: Sequence[Message] = self.conversation(effect.transcript)
        failure = effect.failure
        content = self._get(failure.ref) if failure and failure.ref else None
        context = resolvers.ResolverContext(
            spec.run,
            spec.thread,
            decision.resource,
            decision.used,
            decision.maximum,
            said,
            failure.reason if failure else "",
            ((content.opaque or {}).get("error") or "") if content else "",
        )
        resolver, consults = self._host.resolvers.get(decision.name), decision.name in self._host.consultants
        event, problem = await resolvers.ask(resolver, decision, context, self._clock, self._put, consults)
        if problem:
            self._note(Note("warn", problem))
        return event

    async def _approve(self, effect: Approval) -> e.AnyEvent:
        spec = self._spec
        event, problem = await approvals.ask(
            self._host, effect, spec.run, spec.thread, self._clock, self._put, self.prepared
        )
        if problem:
            self._note(Note("warn", problem, because=effect.because))
        if event is None:
            raise Later
        return event
