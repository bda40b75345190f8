"""One call of a model, or one of a tool, as a session's acts: once for hooks that block, once for those that wait."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from engine.adapters.acts import Advice, Answer, Consult, Failed, Ran, Replied, Run, Send, Sleep, Wanted
from engine.adapters.governor import Governor
from engine.adapters.langchain import wire
from engine.adapters.langchain.heard import Heard, hearing
from engine.adapters.langchain.runs import Inside, inside
from engine.adapters.raised import failed
from engine.adapters.session import Session
from engine.core.decisions import Call
from engine.core.state import NO_TIME
from engine.run.deadlines import Deadlines, told_model
from engine.run.results import failure

T = TypeVar("T")


class TimeOver(Exception):
    """What was to be done is not done in time."""


class ModelTurn:
    """A call of the model that a graph wants to make."""

    def __init__(
        self, governor: Governor, session: Session, request: ModelRequest[Any], models: dict[str, BaseChatModel]
    ) -> None:
        self.governor, self.session, self.request, self.models = governor, session, request, models
        self.response: ModelResponse[Any] | None = None
        self.message: AIMessage | None = None
        self.error: Exception | None = None

    @property
    def wanted(self) -> Wanted:
        """What the graph would do. A size only where the policy counts tokens or money."""
        model = self.request.model
        client = next((name for name, each in self.models.items() if each is model), "main")
        if not self.governor.compiled.core.amounts.metered:
            return Wanted(client, wire.model_name(model))
        most = wire.largest_output(model, self.request.model_settings) or wire.USUAL_OUTPUT
        return Wanted(client, wire.model_name(model), wire.size(self.request), most)

    def perform(self, act: Send | Sleep | Consult, handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Carry out an act where nothing may wait for an event loop."""
        if isinstance(act, Sleep):
            return time.sleep(self._seconds(act.until))
        if isinstance(act, Consult):
            return self.governor.advise_sync(self.session, act, wire.neutral(self.request.messages))
        asked = self._asked(act.call)
        with hearing() as heard:
            try:
                deadline = act.call.deadline if self._timed else NO_TIME
                response = in_time(lambda: handler(asked), deadline, self.governor.clock)
            except Exception as exc:
                return self._failed(exc, heard)
        return self._replied(response)

    async def aperform(
        self, act: Send | Sleep | Consult, handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same where it may."""
        if isinstance(act, Sleep):
            return await asyncio.sleep(self._seconds(act.until))
        if isinstance(act, Consult):
            advice: Advice = await self.governor.advise(self.session, act, wire.neutral(self.request.messages))
            return advice
        asked = self._asked(act.call)
        with hearing() as heard:
            try:
                response = await ain_time(handler(asked), act.call.deadline, self.governor.clock)
            except Exception as exc:
                return self._failed(exc, heard)
        return self._replied(response)

    @property
    def _timed(self) -> bool:
        """Does the policy bound the time of a call? The default bound is not worth a thread: SDKs have theirs."""
        return any(limit.resource in ("attempt_wall", "wall") for limit in self.governor.policy.limits)

    def _seconds(self, until: int) -> float:
        return max(0, until - self.governor.clock()) / 1000

    def _asked(self, call: Call) -> ModelRequest[Any]:
        self.response = self.message = self.error = None
        wanted = self.wanted.client
        model = self.request.model if call.client == wanted else self.models[call.client]
        return wire.asked(call, self.request, model)

    def _failed(self, exc: Exception, heard: Heard) -> Failed:
        if isinstance(exc, GraphBubbleUp):
            raise exc
        self.error = exc
        if isinstance(exc, TimeOver):
            return Failed("timeout", "no answer in time", text=heard.text, delivered=heard.shown)
        failure = failed(exc, text=heard.text, delivered=heard.shown)
        given = getattr(exc, "ai_message", None)  # an answer that does not have the form that was asked for
        if isinstance(given, AIMessage):
            return Failed(
                failure.reason, failure.message, text=given.text, delivered=heard.shown, usage=wire.usage(given)
            )
        return failure

    def _replied(self, response: ModelResponse[Any]) -> Replied:
        found = next(message for message in response.result if isinstance(message, AIMessage))
        message, broken = wire.whole(found)
        self.response, self.message = response, message
        return wire.replied(self.request, response, message, broken)

    def result(self, answer: Answer) -> list[Any]:
        """The messages that the graph gets."""
        if answer.outcome is None:
            assert self.response is not None
            return [self.message if each.type == "ai" else each for each in self.response.result]
        if answer.reply is None or self.message is None:
            return [wire.answer(answer.text, None)]
        assert self.response is not None
        outputs = [each for each in self.response.result if isinstance(each, ToolMessage)]
        if not outputs:
            return [wire.answer(answer.text, self.message)]
        kept = {each.tool_call_id for each in outputs}
        calls = [call for call in self.message.tool_calls if call["id"] in kept]
        return [self.message.model_copy(update={"tool_calls": calls}), *outputs]


class ToolTurn:
    """A tool that a graph wants to run. ``last``: it answers the run."""

    def __init__(self, governor: Governor, session: Session, request: ToolCallRequest, last: bool) -> None:
        self.governor, self.session, self.request, self.last = governor, session, request, last
        self.deadline = NO_TIME

    def perform(self, act: Run | Sleep, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Carry out an act where nothing may wait for an event loop. A tool that is too late runs on, unheard."""
        if isinstance(act, Sleep):
            return time.sleep(max(0, act.until - self.governor.clock()) / 1000)
        within, token = self._entered(act)
        try:
            value = in_time(lambda: handler(self.request), self.deadline, self.governor.clock)
        except Exception as exc:
            return self._failed(exc, within)
        finally:
            inside.reset(token)
        return self._ran(value, within)

    async def aperform(self, act: Run | Sleep, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        """The same where it may; a coroutine that is too late is cancelled."""
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self.governor.clock()) / 1000)
        within, token = self._entered(act)
        try:
            value = await ain_time(handler(self.request), self.deadline, self.governor.clock)
        except Exception as exc:
            return self._failed(exc, within)
        finally:
            inside.reset(token)
        return self._ran(value, within)

    def _entered(self, act: Run) -> tuple[Inside, contextvars.Token[Inside | None]]:
        self.deadline = act.execution.deadline
        within = Inside(self.session)
        return within, inside.set(within)

    def _ran(self, value: Any, within: Inside) -> Ran:
        return wire.ran(value, self.last, within.usage)

    def _failed(self, exc: Exception, within: Inside) -> Ran:
        if isinstance(exc, GraphBubbleUp):
            raise exc
        name = self.request.tool_call["name"]
        if isinstance(exc, TimeOver):
            cut = Deadlines(self.governor.compiled.core).of_tool(name, None, self.deadline)
            return Ran("timed_out", told_model(cut), usage=within.usage)
        return Ran("failed", failure(name, exc).text, usage=within.usage)


def in_time(work: Callable[[], T], deadline: int, clock: Callable[[], int]) -> T:
    """What ``work`` returns; ``TimeOver`` if it has not by the deadline (ms). Then it goes on in a thread, unheard."""
    if deadline >= NO_TIME:
        return work()
    came: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            came.append(work())
        except BaseException as exc:
            raised.append(exc)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(min(max(0, deadline - clock()) / 1000, threading.TIMEOUT_MAX))
    if raised:
        raise raised[0]
    if not came:
        raise TimeOver
    return came[0]


async def ain_time(work: Awaitable[T], deadline: int, clock: Callable[[], int]) -> T:
    """The same for a coroutine, which is cancelled at the deadline."""
    if deadline >= NO_TIME:
        return await work
    bound = asyncio.timeout(max(0, deadline - clock()) / 1000)
    try:
        async with bound:
            return await work
    except TimeoutError:
        if bound.expired():
            raise TimeOver from None
        raise
