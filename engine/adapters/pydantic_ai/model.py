"""The model as an agent under a policy sees it: each request is a call of the run, with all its attempts.

It is the innermost wrapper there is, so that it sees what goes over the wire, and streams that are left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    FinalResultEvent,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from engine.adapters.acts import Answer, Failed, Replied, Send
from engine.adapters.pydantic_ai import wire
from engine.adapters.pydantic_ai.runs import Calling, GovernedRun, Paused, summed
from engine.core.messages import Usage


class GovernedModel(WrapperModel):
    """A model of a run under a policy."""

    def __init__(self, wrapped: Model, run: GovernedRun) -> None:
        super().__init__(wrapped)
        self.run = run

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        request = wire.Sent(messages, model_settings, model_request_parameters)
        making = Making(self, request)
        while (asked := await making.next()) is not None:
            model, sent = making.attempt(asked)
            try:
                async with asyncio.timeout(making.left(asked)):
                    response = await model.request(*sent)
            except UserError:  # a mistake in the program, that no retry mends
                raise
            except Exception as exc:
                making.came = wire.failed(exc)
                continue
            if making.heard(response, asked):
                return response
        return making.response()

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        request = wire.Sent(messages, model_settings, model_request_parameters)
        stream = GovernedStream(model_request_parameters, Making(self, request), run_context)
        try:
            yield stream
        finally:
            await stream.aclose()


class Making:
    """A call that is being made: between its attempts, and what it has come to."""

    def __init__(self, model: GovernedModel, request: wire.Sent) -> None:
        self.run, self.model, self.request = model.run, model.wrapped, request
        self.came: Replied | Failed | None = None
        self.answer: Answer | None = None
        self.last: ModelResponse | None = None
        self._used: list[RequestUsage] = []
        self._acts: Calling | None = None
        self._paused: Paused | None = None

    async def next(self) -> Send | None:
        """The attempt to make, or nothing where the call is over: then there is an answer."""
        result: Any = self.came
        if self._acts is None:
            paused, self.run.paused = self.run.paused, None
            if paused is not None:
                self._acts, self._paused = paused.acts, paused
                return paused.asked
            self._acts, result = self.run.calling(self.model, self.request), None
        self.came = None
        try:
            act = self._acts.send(result)
            while not isinstance(act, Send):
                act = self._acts.send(await self.run.perform(act, self.request.messages))
            return act
        except StopIteration as over:
            self.answer = over.value
            self.run.heard(over.value, result if isinstance(result, Replied) else None, self.run.tools)
            return None

    def attempt(self, asked: Send) -> tuple[Model, wire.Sent]:
        """Whom to send the attempt to, and what."""
        call = asked.call
        model = self.model if call.client in ("", self.run.own) else self.run.models[call.client]
        sent = wire.sent(call, self.request, model, self.run.refused)
        if model is not self.model:
            sent = sent._replace(messages=model.prepare_messages(sent.messages, sent.parameters))
        return model, sent

    def left(self, asked: Send) -> float:
        """Seconds until the attempt is cut."""
        return max(0, asked.call.deadline - self.run.governor.clock()) / 1000

    def heard(self, response: ModelResponse, asked: Send) -> bool:
        """An attempt has come to this. Is that what the framework gets, before anything is decided?"""
        self.last = response
        self._used.append(response.usage)
        paused = self._paused
        if response.state == "suspended" and self._acts is not None:
            used = _added(paused.used if paused else None, wire.usage(response.usage))
            self.run.paused = Paused(self._acts, asked, used)
            return True
        came = wire.replied(response, self.request.parameters, self.run.ctx)
        if paused is not None and isinstance(came, Replied):
            came = structs.replace(came, reply=structs.replace(came.reply, usage=_added(paused.used, came.reply.usage)))
        self.came = came
        return self._acts is not None and len(self._used) == 1 and self.run.holds(self._acts, came)

    def response(self) -> ModelResponse:
        """What the framework gets for a call that is over."""
        assert self.answer is not None
        if self.answer.outcome is not None and self.answer.reply is None:
            return self.run.stopped(self.answer, self.model, self.request.parameters)
        return self.replied()

    def replied(self) -> ModelResponse:
        """The last response, without calls that are not to be carried out any more."""
        assert self.answer is not None
        assert self.last is not None
        response = self.last
        if self.answer.outcome is not None:
            response = wire.without_calls(response, self.outputs)
        return replace(response, usage=summed(self._used)) if len(self._used) > 1 else response

    @property
    def outputs(self) -> frozenset[str]:
        """The tools by which the model gives its answer."""
        return frozenset(tool.name for tool in self.request.parameters.output_tools)

    def give_up(self) -> None:
        """The call is left in its midst."""
        if self.answer is None and self._acts is not None:
            self._acts.close()


@dataclass
class GovernedStream(StreamedResponse):
    """A call whose reply is passed on piece by piece.

    Text is passed on as it comes; calls of tools when they have been judged, for those of an ended run never happen.
    """

    making: Making = field(repr=False)
    run_context: RunContext[Any] | None = field(default=None, repr=False)
    _sub: StreamedResponse | None = field(default=None, init=False, repr=False)
    _events: AsyncGenerator[ModelResponseStreamEvent] | None = field(default=None, init=False, repr=False)
    _response: ModelResponse | None = field(default=None, init=False, repr=False)
    _seen: str = field(default="", init=False, repr=False)
    """What somebody has seen of the reply that comes."""
    _later: list[ModelResponseStreamEvent] = field(default_factory=list, init=False, repr=False)
    _since: datetime = field(default_factory=lambda: datetime.now(UTC), init=False, repr=False)

    def __aiter__(self) -> AsyncIterator[ModelResponseStreamEvent]:
        if self._event_iterator is None:
            self._events = self._get_event_iterator()
            self._event_iterator = self._passed_on(self._events)
        return self._event_iterator

    async def _passed_on(
        self, events: AsyncGenerator[ModelResponseStreamEvent]
    ) -> AsyncGenerator[ModelResponseStreamEvent]:
        """The pieces come complete from the streams inside; here it is only noted when they begin and end."""
        async for event in events:
            if self._first_chunk_monotonic is None:
                self._first_chunk_monotonic = time.perf_counter()
            if isinstance(event, FinalResultEvent):
                self.final_result_event = event
            yield event
        self._finished = not self._cancelled

    async def _get_event_iterator(self) -> AsyncGenerator[ModelResponseStreamEvent]:
        making = self.making
        while (asked := await making.next()) is not None:
            async with aclosing(self._attempt(asked)) as events:
                async for event in events:
                    yield event
            if self._cancelled:
                making.give_up()
                making.run.left("user")
                return
            if making.came is None:  # held, or not finished yet
                self._response = making.last
                break
        for event in self._concluded():
            yield event

    async def _attempt(self, asked: Send) -> AsyncGenerator[ModelResponseStreamEvent]:
        making, self._seen, self._later = self.making, "", []
        model, sent = making.attempt(asked)
        try:
            async with asyncio.timeout(making.left(asked)):
                opened = model.request_stream(*sent, self.run_context)
                self._sub = await opened.__aenter__()
            try:
                pieces = aiter(self._sub)
                while True:
                    async with asyncio.timeout(making.left(asked)):
                        event = await anext(pieces, None)
                    if event is None:
                        break
                    if self._goes_on(event):
                        yield event
            finally:
                await opened.__aexit__(None, None, None)
        except UserError:
            raise
        except Exception as exc:
            making.came = wire.failed(exc, self._seen)
            return
        if not self._cancelled and making.heard(self._sub.get(), asked):
            making.came = None

    def _goes_on(self, event: ModelResponseStreamEvent) -> bool:
        """May this piece be passed on at once?"""
        if isinstance(event, PartStartEvent):
            if isinstance(event.part, ToolCallPart) and event.part.tool_name not in self.making.outputs:
                self._later.append(event)
                return False
            self._seen += event.part.content if isinstance(event.part, TextPart | ThinkingPart) else ""
        elif isinstance(event, PartDeltaEvent | PartEndEvent) and self._is_later(event.index):
            self._later.append(event)
            return False
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
            self._seen += event.delta.content_delta or ""
        return True

    def _is_later(self, index: int) -> bool:
        return any(isinstance(each, PartStartEvent) and each.index == index for each in self._later)

    def _concluded(self) -> list[ModelResponseStreamEvent]:
        """The pieces that are left when the call is over."""
        making = self.making
        answer = making.answer
        if self._response is not None or answer is None:
            return self._later
        if answer.outcome is None or answer.reply is not None:
            self._response = making.replied()
            return [] if answer.outcome is not None else self._later
        text = making.run.ended(answer, self.model_request_parameters, self._seen)
        seen: list[ModelResponsePart] = []
        if self._seen and self._sub is not None:
            seen = [part for part in self._sub.get().parts if isinstance(part, TextPart | ThinkingPart)]
        part = TextPart(text)
        self._response = ModelResponse([*seen, part], model_name=self.model_name)
        events: list[ModelResponseStreamEvent] = [PartStartEvent(index=len(seen), part=part)]
        if self.final_result_event is None:
            events.append(FinalResultEvent(tool_name=None, tool_call_id=None))
        return [*events, PartEndEvent(index=len(seen), part=part)]

    def get(self) -> ModelResponse:
        """The response so far."""
        if self._response is not None:
            return self._response
        if self._sub is not None:
            return self._sub.get()
        return ModelResponse([], model_name=self.model_name, state="interrupted" if self._cancelled else "incomplete")

    @property
    def usage(self) -> RequestUsage:
        """The usage so far."""
        return self.get().usage

    async def close_stream(self) -> None:
        """Whoever listens has had enough."""
        if self._sub is not None:
            await self._sub.cancel()

    async def aclose(self) -> None:
        """Nobody asks for more pieces. A reply that was not at its end by then is given up, and the run with it."""
        if self._events is not None:
            await self._events.aclose()
        if self._response is None and self._event_iterator is not None:
            self.making.give_up()

    @property
    def model_name(self) -> str:
        """The model that replies."""
        return self.making.model.model_name if self._sub is None else self._sub.model_name

    @property
    def provider_name(self) -> str | None:
        """Whose model it is."""
        return self.making.model.system if self._sub is None else self._sub.provider_name

    @property
    def provider_url(self) -> str | None:
        """Where that is."""
        return self.making.model.base_url if self._sub is None else self._sub.provider_url

    @property
    def timestamp(self) -> datetime:
        """When the reply began."""
        return self._since if self._sub is None else self._sub.timestamp


def _added(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return one or other
    return Usage(*(a + b for a, b in zip(structs.astuple(one), structs.astuple(other), strict=True)))
