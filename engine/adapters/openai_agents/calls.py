"""A model of the SDK under the policy: each turn of the loop is a call that the run's session makes, or does not.

The SDK asks for one response; the attempts, waits, fallbacks and the final call behind it happen inside. A turn that
the policy does not grant answers with a text, so the SDK's loop ends as if the model had said that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agents.agent_output import AgentOutputSchemaBase
from agents.exceptions import UserError
from agents.handoffs import Handoff
from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.model_settings import ModelSettings
from agents.models._retry_runtime import provider_managed_retries_disabled
from agents.models.interface import Model, ModelProvider, ModelTracing
from agents.tool import Tool
from openai.types.responses import Response, ResponseCompletedEvent, ResponseTextDeltaEvent

from engine.adapters.acts import Answer, Consult, Failed, Replied, Send, Sleep, Wanted
from engine.adapters.carrying import carried
from engine.adapters.openai_agents import replies
from engine.adapters.openai_agents.running import PolicyStopped, Running, current
from engine.adapters.raised import failed
from engine.core.decisions import Call
from engine.core.state import NO_TIME
from engine.run import sizes
from engine.run.hooks import without_tool_control


@dataclass(frozen=True, slots=True)
class Turn:
    """What the SDK wants to send."""

    system: str | None
    input: str | list[TResponseInputItem]
    settings: ModelSettings
    tools: list[Tool]
    schema: AgentOutputSchemaBase | None
    handoffs: list[Handoff]
    tracing: ModelTracing
    kept: Mapping[str, Any]
    """What the provider keeps of the conversation: ``previous_response_id``, ``conversation_id``, ``prompt``."""

    @property
    def elsewhere(self) -> bool:
        """Is the conversation kept by the provider? Then no other one can go on with it."""
        return bool(self.kept.get("previous_response_id") or self.kept.get("conversation_id"))

    def under(self, call: Call) -> Turn:
        """The turn as the decision wants it."""
        changes: dict[str, Any] = {}
        said = [*call.notices, *([call.instruction] if call.final and call.instruction else ())]
        if said and self.elsewhere:  # what is said there stays in the conversation, so it is said beside it
            changes["system"] = "\n\n".join((*([self.system] if self.system else ()), *said))
        elif said:
            before = [{"role": "user", "content": self.input}] if isinstance(self.input, str) else self.input
            changes["input"] = [*before, *({"role": "user", "content": text} for text in said)]
        if call.hidden:
            changes["tools"] = [tool for tool in self.tools if tool.name not in call.hidden]
        if call.final:
            changes |= {"tools": [], "handoffs": []}
        settings = _settings(self.settings, call)
        return replace(self, settings=settings, **changes) if changes or settings is not self.settings else self


def _settings(settings: ModelSettings, call: Call) -> ModelSettings:
    if call.max_output is not None and (settings.max_tokens is None or settings.max_tokens > call.max_output):
        settings = replace(settings, max_tokens=call.max_output)
    if settings.tool_choice in call.hidden:
        settings = replace(settings, tool_choice=None)
    if call.final:
        settings = replace(
            settings,
            tool_choice=None,
            parallel_tool_calls=None,
            extra_args=without_tool_control(settings.extra_args) if settings.extra_args else settings.extra_args,
        )
    return settings


class PolicyModel(Model):
    """A model of the SDK under the policy of the run it is called in; outside of one it is the model alone."""

    def __init__(self, inner: Model, named: Named) -> None:
        self.inner, self._named = inner, named

    def __getattr__(self, name: str) -> Any:  # what the SDK asks of models beside their interface
        return getattr(self.inner, name)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self.inner._cleanup_on_run_end(owner)

    async def close(self) -> None:
        await self.inner.close()

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        **kept: Any,
    ) -> ModelResponse:
        running = current.get()
        if running is not None:
            input = replies.in_order(input, running.calls)
        turn = Turn(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing, kept)
        if running is None:
            return await _get(self.inner, turn)
        came: ModelResponse | None = None

        async def perform(act: Send | Sleep | Consult) -> Any:
            nonlocal came
            if not isinstance(act, Send):
                return await _beside(running, turn, act)
            try:
                model = self._model(running, turn, act.call)
                with provider_managed_retries_disabled(True):
                    async with _cut(running, act.call):
                        came = await _get(model, turn.under(act.call))
            except Exception as error:
                return _failed(running, error)
            return replies.replied(came.output, replies.used(came.usage), turn.tools, turn.handoffs)

        try:
            await running.settled()
            answer = await carried(running.session.call(self._wanted(running, turn)), perform)
        except BaseException:
            running.left()
            raise
        if not _ended(running, turn, answer):
            assert came is not None
            return came
        return replies.said(answer.text, came.usage if came is not None else None)

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        **kept: Any,
    ) -> AsyncIterator[TResponseStreamEvent]:
        running = current.get()
        if running is not None:
            input = replies.in_order(input, running.calls)
        turn = Turn(system_instructions, input, model_settings, tools, output_schema, handoffs, tracing, kept)
        if running is None:
            async with aclosing(_stream(self.inner, turn)) as events:
                async for event in events:
                    yield event
            return
        try:
            await running.settled()
            pieces = Pieces()
            acts = running.session.call(self._wanted(running, turn))
            try:
                act = next(acts)
                while True:
                    if isinstance(act, Send):
                        pieces = Pieces()
                        try:
                            model = self._model(running, turn, act.call)
                            sent = _stream(model, turn.under(act.call))
                            async with _cut(running, act.call), aclosing(sent) as events:
                                async for event in events:
                                    if not pieces.keeps(event):
                                        yield event
                            came = pieces.came(turn)
                        except Exception as error:
                            came = _failed(running, error, pieces.text)
                    else:
                        came = await _beside(running, turn, act)
                    act = acts.send(came)
            except StopIteration as over:
                answer: Answer = over.value
            finally:
                acts.close()
            replaced = _ended(running, turn, answer)
        except BaseException:
            running.left()
            raise
        if replaced:
            yield _delta(answer.text)
            end = replies.said_at_the_end(answer.text, pieces.response)
            yield ResponseCompletedEvent(response=end, sequence_number=0, type="response.completed")
        else:
            assert pieces.end is not None
            yield pieces.end

    def _wanted(self, running: Running, turn: Turn) -> Wanted:
        name = self._named.name_of(self.inner)
        if name == running.client:
            running.own = self.inner
        size = replies.characters(turn.system, turn.input, turn.tools) if running.metered else None
        asked = None if size is None else sizes.tokens(size)
        return Wanted(name, str(getattr(self.inner, "model", "")), asked, turn.settings.max_tokens)

    def _model(self, running: Running, turn: Turn, call: Call) -> Model:
        if call.client == self._named.name_of(self.inner):
            return self.inner
        if turn.elsewhere:
            raise UserError(f"a conversation that the provider keeps cannot go on with model `{call.client}`")
        model = running.own if call.client == running.client else self._named.model(call.client)
        if model is None:
            raise UserError(f"no agent of this run has called model `{call.client}` so far")
        return model


class Named(ModelProvider):
    """The SDK's models under the policy: those it gets from a provider, and those that the policy names."""

    def __init__(self, provider: ModelProvider, models: Mapping[str, Model | str], client: str) -> None:
        self.provider, self._models, self._client = provider, models, client
        self._made: dict[str, Model] = {name: model for name, model in models.items() if isinstance(model, Model)}
        self._under: dict[int, PolicyModel] = {}

    def get_model(self, model_name: str | None) -> Model:
        return self.under(self.provider.get_model(model_name))

    def under(self, model: Model) -> PolicyModel:
        """The model under the policy: the same object for the same model."""
        if isinstance(model, PolicyModel):
            return model
        known = self._under.get(id(model))
        if known is None:
            known = self._under[id(model)] = PolicyModel(model, self)
        return known

    def model(self, name: str) -> Model | None:
        """A model by the policy's name for it."""
        wanted = self._models.get(name)
        if name not in self._made and isinstance(wanted, str):
            self._made[name] = self.provider.get_model(wanted)
        return self._made.get(name)

    def name_of(self, model: Model) -> str:
        """The policy's name for a model; all that it does not name are the agents' own."""
        return next((name for name, each in self._made.items() if each is model), self._client)

    async def aclose(self) -> None:
        await self.provider.aclose()


class Pieces:
    """An attempt whose reply comes in pieces."""

    def __init__(self) -> None:
        self.text = ""
        self.response: Response | None = None
        self.end: Any = None
        self._items: list[Any] = []

    def keeps(self, event: Any) -> bool:
        """Takes a piece in; those that end the reply are kept back until the policy has judged it."""
        kind = getattr(event, "type", "")
        if kind == "response.output_text.delta":
            self.text += event.delta
        elif kind == "response.output_item.done":
            self._items.append(event.item)
        elif kind in ("response.completed", "response.incomplete", "response.failed", "response.error", "error"):
            self.end, self.response = event, getattr(event, "response", None)
            return True
        return False

    def came(self, turn: Turn) -> Replied | Failed:
        """What the attempt has come to."""
        if self.end is None:
            return Failed("network", "the stream ended before the reply did", text=self.text, delivered=True)
        usage = replies.used(self.response.usage) if self.response is not None else None
        if self.response is None or self.end.type != "response.completed":
            reason, message = _unfinished(self.end, self.response)
            return Failed(reason, message, text=self.text, delivered=True, usage=usage)
        if not self.response.output and self._items:
            self.response.output = list(self._items)
        return replies.replied(self.response.output, usage, turn.tools, turn.handoffs)


def _unfinished(end: Any, response: Response | None) -> tuple[str, str]:
    details = getattr(response, "incomplete_details", None)
    if details is not None and details.reason:
        filtered = details.reason == "content_filter"
        return ("content_filter" if filtered else "truncated"), f"the reply is incomplete: {details.reason}"
    error = getattr(response, "error", None) or end
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    return ("rate_limit" if code == "rate_limit_exceeded" else "provider"), str(message or "the provider has failed")


async def _get(model: Model, turn: Turn) -> ModelResponse:
    return await model.get_response(
        system_instructions=turn.system,
        input=turn.input,
        model_settings=turn.settings,
        tools=turn.tools,
        output_schema=turn.schema,
        handoffs=turn.handoffs,
        tracing=turn.tracing,
        **turn.kept,
    )


async def _stream(model: Model, turn: Turn) -> AsyncGenerator[TResponseStreamEvent, None]:
    """A stream of the model's, which is closed whatever happens."""
    stream = model.stream_response(
        turn.system,
        turn.input,
        turn.settings,
        turn.tools,
        turn.schema,
        turn.handoffs,
        turn.tracing,
        **turn.kept,
    )
    try:
        while True:
            with provider_managed_retries_disabled(current.get() is not None):
                event = await anext(stream, None)
            if event is None:
                return
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def _cut(running: Running, call: Call) -> asyncio.Timeout:
    """What cuts an attempt at the policy's deadline."""
    if call.deadline >= NO_TIME:
        return asyncio.timeout(None)
    return asyncio.timeout(max(0, call.deadline - running.governor.clock()) / 1000)


async def _beside(running: Running, turn: Turn, act: Sleep | Consult) -> Any:
    if isinstance(act, Sleep):
        return await running.sleep(act)
    return await running.governor.advise(running.session, act, replies.conversation(turn.input))


def _failed(running: Running, error: Exception, text: str = "") -> Failed:
    came = failed(error, text=text, delivered=True, otherwise="host")
    running.raised = error if came.reason == "host" else None
    return came


def _ended(running: Running, turn: Turn, answer: Answer) -> bool:
    """Is a text of ours to stand in the reply's place? Raises what no text can say."""
    if answer.outcome is None:
        reply = answer.reply
        assert reply is not None
        running.verdicts = dict(answer.verdicts)
        running.calls = {call.id: (call.name, call.arguments) for call in reply.message.tool_calls}
        return False
    running.over()
    if answer.reply is not None:
        return False
    if running.raised is not None and answer.outcome.status == "failed":
        raise running.raised
    if turn.schema is not None and not turn.schema.is_plain_text():
        raise PolicyStopped(answer.outcome, answer.text)
    return True


def _delta(text: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        content_index=0,
        delta=text,
        item_id="policy",
        logprobs=[],
        output_index=0,
        sequence_number=0,
        type="response.output_text.delta",
    )
