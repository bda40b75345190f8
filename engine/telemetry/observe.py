"""One run as spans and metrics: a span for the run, one for each attempt at a model, one for each execution.

Names and attributes are those of the GenAI semantic conventions; what these have no word for begins with ``agent.``.
Needs OpenTelemetry's API.
"""

from __future__ import annotations

import time
from typing import Final

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from engine.core import decisions as d
from engine.core import events as e
from engine.core.decisions import AnyDecision, Note
from engine.core.messages import Usage
from engine.core.state import Outcome, State
from engine.core.step import Compiled
from engine.run.effects import Effect, ModelCall, RunSpec, ToolRun, model_key, tool_key
from engine.run.host import Host
from engine.run.listeners import Quiet
from engine.telemetry.metrics import Instruments

Attributes = dict[str, str | int | bool | tuple[str, ...]]

_PROVIDERS: Final = {"openai_chat": "openai"}
"""Wire formats whose provider the conventions call otherwise."""

_REFUSED_BY: Final = ("tool_calls", "tool_iterations", "tool_limit")
"""Why a call was not executed, where a limit is the reason."""


class _Open:
    """A span that is going on, and when it began (seconds, monotonic)."""

    __slots__ = ("attributes", "began", "span")

    def __init__(self, span: Span, attributes: Attributes) -> None:
        self.span = span
        self.attributes = attributes
        self.began = time.perf_counter()


class Observed(Quiet):
    """The listener for one run. Its span belongs to whatever span is current where the run is started."""

    def __init__(self, instruments: Instruments, tracer: Tracer, compiled: Compiled, spec: RunSpec, host: Host) -> None:
        self._to = instruments
        self._tracer = tracer
        self._host = host
        self._agent: Attributes = {"gen_ai.agent.name": compiled.policy.name}
        self._spans: dict[str, _Open] = {}
        self._reached: set[tuple[str, str]] = set()
        self._finalized = False
        self._client = spec.client
        self._failed = ""
        run: Attributes = {"gen_ai.operation.name": "invoke_agent", "agent.run.id": spec.run, **self._agent}
        run["gen_ai.provider.name"] = self._provider(spec.client)
        run["agent.policy.fingerprint"] = spec.fingerprint
        if spec.thread is not None:
            run["gen_ai.conversation.id"] = spec.thread
        self._run: Span | None = tracer.start_span(f"invoke_agent {compiled.policy.name}", attributes=run)
        self._inside = set_span_in_context(self._run)

    # What begins.

    def started(self, effect: Effect) -> None:
        if isinstance(effect, ModelCall):
            self._call(effect.decision)
        elif isinstance(effect, ToolRun):
            attributes: Attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": effect.call.name,
                "gen_ai.tool.call.id": effect.call.id,
                "gen_ai.tool.type": "function",
                "agent.tool.attempt": effect.decision.attempt,
            }
            self._begin(effect.key, f"execute_tool {effect.call.name}", SpanKind.INTERNAL, attributes)

    def _call(self, call: d.Call) -> None:
        self._client = call.client
        client = self._host.clients.get(call.client)
        model = client.model if client is not None else ""
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._provider(call.client),
            "gen_ai.request.model": model,
            "agent.client.name": call.client,
        }
        more: Attributes = {
            "agent.call.id": call.call,
            "agent.call.attempt": call.attempt,
            "agent.call.final": call.final,
        }
        largest = call.max_output or self._host.largest_output(call.client)
        if largest is not None:
            more["gen_ai.request.max_tokens"] = largest
        self._begin(model_key(call.call, call.attempt), f"chat {model}", SpanKind.CLIENT, attributes, more)

    def _begin(
        self, key: str, name: str, kind: SpanKind, attributes: Attributes, more: Attributes | None = None
    ) -> None:
        span = self._tracer.start_span(name, self._inside, kind, {**attributes, **(more or {})})
        self._spans[key] = _Open(span, attributes)

    def _provider(self, name: str) -> str:
        client = self._host.clients.get(name)
        wire = client.wire if client is not None else ""
        return _PROVIDERS.get(wire, wire)

    # What happens.

    def replayed(self, event: e.AnyEvent, state: State) -> None:
        if isinstance(event, e.ModelFailed):
            self._failed = event.reason

    def decided(self, event: e.AnyEvent, decision: AnyDecision, state: State) -> None:
        if isinstance(event, e.ModelReplied):
            self._replied(event)
        elif isinstance(event, e.ModelFailed):
            self._failed = event.reason
            self._ended(model_key(event.call, event.attempt), event.reason, event.usage)
        elif isinstance(event, e.ToolEnded):
            self._ended(tool_key(event.id), "" if event.status == "ok" else event.status)
        for note in decision.notes:
            self._note(note, decision)
        if isinstance(decision, d.Call):
            if decision.final and not self._finalized:
                self._finalized = True
                self._to.finalization.add(1, {**self._agent, "agent.limit.resource": decision.why})
                self._limit(decision.why, "finalize")
        elif isinstance(decision, d.RunTools):
            for verdict in decision.verdicts:
                if isinstance(verdict, d.Reply):
                    self._refused(verdict, event)
        elif isinstance(decision, d.Reply):
            self._refused(decision, event)
        elif isinstance(decision, d.End):
            self._over(decision.outcome)

    def _replied(self, event: e.ModelReplied) -> None:
        key = model_key(event.call, event.attempt)
        if key in self._spans:
            self._spans[key].span.set_attribute("gen_ai.response.finish_reasons", (event.finish,))
        self._ended(key, "", event.usage)

    def _ended(self, key: str, error: str, usage: Usage | None = None) -> None:
        going = self._spans.pop(key, None)
        if going is None:
            return
        span, attributes = going.span, going.attributes
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        if usage is not None:
            span.set_attribute("gen_ai.usage.input_tokens", usage.input)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output)
        span.end()
        if attributes["gen_ai.operation.name"] != "chat":
            return
        said = {**self._agent, **attributes}
        if usage is not None:
            self._to.tokens.record(usage.input, {**said, "gen_ai.token.type": "input"})
            self._to.tokens.record(usage.output, {**said, "gen_ai.token.type": "output"})
        failed: Attributes = {"error.type": error} if error else {}
        self._to.duration.record(time.perf_counter() - going.began, {**said, **failed})

    def _note(self, note: Note, decision: AnyDecision) -> None:
        if note.kind == "fallback" and isinstance(decision, d.Call):
            to = {"agent.client.name": decision.client, "agent.client.failed": self._client}
            self._to.fallback.add(1, {**self._agent, **to, "error.type": self._failed})
        elif note.kind == "retry":
            failed = {"agent.client.name": self._client, "error.type": self._failed}
            self._to.retry.add(1, {**self._agent, **failed})
        elif note.kind == "extended":
            self._limit(note.resource, "extend")
        if self._run is not None:
            self._run.add_event(f"agent.{note.kind}", {"agent.note": note.text, "agent.rule": note.because})

    def _refused(self, reply: d.Reply, event: e.AnyEvent) -> None:
        if reply.why == "unknown_tool":
            self._to.unknown.add(1, self._agent)  # a model makes up names without end: none is an attribute
        elif reply.why == "breaker":
            name = _tool_of(reply.id, event)
            self._to.circuit_open.add(1, {**self._agent, **({"gen_ai.tool.name": name} if name else {})})
        elif reply.why in _REFUSED_BY:
            self._limit(reply.why, "refuse")

    def _limit(self, resource: str, step: str) -> None:
        if resource and (resource, step) not in self._reached:
            self._reached.add((resource, step))
            self._to.limit.add(1, {**self._agent, "agent.limit.resource": resource, "agent.limit.step": step})

    # The end.

    def _over(self, outcome: Outcome) -> None:
        if outcome.status == "incomplete":
            self._limit(outcome.reason, "stop")
        span = self._run
        if span is None:
            return
        span.set_attribute("agent.outcome.status", outcome.status)
        span.set_attribute("agent.outcome.reason", outcome.reason)
        span.set_attribute("agent.outcome.rule", outcome.because)
        span.set_attribute("agent.client.name", outcome.client)
        span.set_attribute("gen_ai.usage.input_tokens", outcome.used.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", outcome.used.output_tokens)
        if outcome.status == "failed":
            span.set_attribute("error.type", outcome.error or outcome.reason)
            span.set_status(Status(StatusCode.ERROR))
        self._close("cancelled")

    def over(self) -> None:
        """The run does not go on in this process: without an end it has broken down."""
        if self._run is not None:
            self._run.set_attribute("error.type", "broken_down")
            self._run.set_status(Status(StatusCode.ERROR))
            self._close("cancelled")

    def _close(self, error: str) -> None:
        for key in list(self._spans):
            self._ended(key, error)
        run, self._run = self._run, None
        if run is not None:
            run.end()


def _tool_of(id: str, event: e.AnyEvent) -> str:
    """The registered tool that a refused call asked for."""
    if isinstance(event, e.ModelReplied):
        return next((call.name for call in event.calls if call.id == id), "")
    return event.name if isinstance(event, e.ToolRequested) and event.id == id else ""
