"""One run of an agent under a policy: what is known between the framework's hooks, and what each of them does.

The session decides. Kept here is what the framework never tells: which calls wait for whom, and an answer that it may
still send back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from msgspec import structs
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import DeferredToolRequests, RunContext, ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_ai.usage import RequestUsage
from pydantic_core import SchemaValidator, core_schema

from engine.adapters.acts import Answer, Consult, Failed, Ran, Replied, Result, Run, Send, Sleep, Wanted
from engine.adapters.governor import Governor
from engine.adapters.pydantic_ai import wire
from engine.adapters.session import Session
from engine.core.decisions import Ask, Execute, Reply
from engine.core.messages import ToolCall, Usage
from engine.core.outcome import Outcome
from engine.core.vocabulary import REFUSALS
from engine.run.results import failure

Calling = Generator[Send | Sleep | Consult, Any, Answer]
"""A call of a model that goes on."""

_ANYTHING = SchemaValidator(core_schema.dict_schema())
_NOWHERE: FunctionToolset[Any] = FunctionToolset()


class PolicyStopped(AgentRunError):
    """The policy has ended the run, and there is no answer that the agent's output type takes.

    ``outcome`` says how it ended, the message what would have been shown.
    """

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Waiting(NamedTuple):
    """A tool call without a result. ``open``: nobody has come for it yet; ``asked``: a person is to allow it;
    ``elsewhere``: somebody else carries it out. ``arguments`` are the model's."""

    how: Literal["open", "asked", "elsewhere"]
    arguments: str


class Paused(NamedTuple):
    """A call whose response the provider has not finished: the framework asks for the rest of it."""

    acts: Calling
    asked: Send
    used: Usage | None


class GovernedRun:
    """See the module. ``models`` are those the policy can name, ``own`` is what it calls the agent's model.

    ``raises``: a run without an answer raises ``PolicyStopped``, whatever the output type. ``on_end`` is told
    the outcome.
    """

    def __init__(
        self,
        governor: Governor,
        session: Session,
        models: Mapping[str, Model],
        own: str,
        *,
        raises: bool = False,
        on_end: Callable[[Outcome], Any] | None = None,
    ) -> None:
        self.governor, self.session, self.models, self.own = governor, session, models, own
        self.ctx: RunContext[Any] | None = None
        self.refused: dict[str, str] = {}
        """Texts for results where a person has refused without a word, by the calls' ids."""
        self.paused: Paused | None = None
        self._raises, self._on_end = raises, on_end
        self._waiting: dict[str, Waiting] = {}
        self._replies: dict[str, Reply] = {}
        self._held: tuple[Calling, Replied] | None = None
        self._shown = False
        self._known = False

    # A model is called.

    def calling(self, model: Model, request: wire.Sent) -> Calling:
        """The call that the framework wants, with whatever it has answered by itself before."""
        if self._held is not None:
            self._sent_back(*self._held)
        self._settle(request.messages)
        answered = tuple(id for id, each in self._waiting.items() if each.how == "open")
        self._waiting.clear()
        largest = (request.settings or {}).get("max_tokens")
        return self.session.call(Wanted(self.own, model.model_name, wire.tokens(request), largest), answered)

    def _settle(self, messages: Iterable[ModelMessage]) -> None:
        """What the framework has heard of people and of tools elsewhere, it only tells by its messages."""
        if all(each.how == "open" for each in self._waiting.values()):
            return
        results = wire.results(messages)
        for id, each in self._waiting.items():
            if each.how == "asked":
                self.session.answer(id, False)
                with suppress(StopIteration):
                    self._text_of(id)
            elif each.how == "elsewhere":
                self.session.brought(id, wire.brought(results[id]) if id in results else Ran("unknown"))

    def _text_of(self, id: str) -> None:
        """What stands for the result of a call that a person has refused."""
        try:
            next(self.session.tool(id, "", "{}"))
        except StopIteration as over:
            self.refused[id] = over.value.refused

    def _sent_back(self, acts: Calling, came: Replied) -> None:
        """The answer was not accepted: it counts as a call of a tool whose arguments do not fit."""
        self._held = None
        message = came.reply.message
        calls = tuple(each for each in message.tool_calls if each.kind != "hosted") or (ToolCall("answer", "answer"),)
        reply = structs.replace(came.reply, message=structs.replace(message, tool_calls=calls), finish="tool_calls")
        self._conclude(acts, Replied(reply, problems={each.id: wire.REJECTED for each in calls}))

    def _conclude(self, acts: Calling, came: Replied) -> None:
        try:
            acts.send(came)
        except StopIteration as over:
            self.heard(over.value, came, {})
        else:
            acts.close()

    def holds(self, acts: Calling, came: Replied | Failed) -> bool:
        """Is this an answer, which the framework may still send back? It is reported when that is known."""
        if isinstance(came, Failed) or came.reply.finish not in ("stop", "tool_calls") or came.problems:
            return False
        message = came.reply.message
        kinds = {came.kinds.get(each.id, "function") for each in message.tool_calls}
        if kinds - {"output", "hosted"} or not (message.text.strip() or "output" in kinds):
            return False
        self._held = (acts, came)
        return True

    def heard(self, answer: Answer, came: Replied | None, tools: dict[str, ToolsetTool[Any]] | None) -> None:
        """A call is over: what is to become of the reply's tool calls."""
        arguments = {} if came is None else {each.id: each.arguments for each in came.reply.message.tool_calls}
        self._replies = {id: verdict for id, verdict in answer.verdicts.items() if isinstance(verdict, Reply)}
        self._waiting = {
            id: Waiting(_how(verdict), arguments.get(id, "{}"))
            for id, verdict in answer.verdicts.items()
            if not isinstance(verdict, Reply)
        }
        if came is not None and came.unregistered and tools is not None:
            for call in came.reply.message.tool_calls:
                if call.id in came.unregistered:
                    tools.setdefault(call.name, _stub(call.name))

    @property
    def tools(self) -> dict[str, ToolsetTool[Any]] | None:
        """The tools of the framework's step in hand."""
        manager = None if self.ctx is None else self.ctx.tool_manager
        return None if manager is None else manager.tools

    async def perform(self, act: Sleep | Consult, messages: Iterable[ModelMessage]) -> Any:
        """Whatever a call needs beside attempts."""
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self.governor.clock()) / 1000)
        return await self.governor.advise(self.session, act, wire.conversation(messages))

    def ended(self, answer: Answer, parameters: ModelRequestParameters, said: str = "") -> str:
        """What is shown of a run that has ended without an answer. ``said`` has been shown already.

        Raises:
            PolicyStopped: the framework takes no text, has had this one, or is to be told so.
        """
        assert answer.outcome is not None
        takes_text = parameters.allow_text_output and parameters.output_object is None
        if self._shown or self._raises or not takes_text:
            raise PolicyStopped(answer.outcome, answer.text)
        self._shown = True
        return answer.text.removesuffix(f"\n{said}") if said else answer.text

    def stopped(self, answer: Answer, model: Model, parameters: ModelRequestParameters) -> ModelResponse:
        """A response that says why there is none."""
        return ModelResponse([TextPart(self.ended(answer, parameters))], model_name=model.model_name)

    # A tool is called.

    def refuses(self, id: str) -> bool:
        """Has the reply's judgement been that this call is not executed?"""
        return id in self._replies

    async def tool(
        self, ctx: RunContext[Any], call: ToolCallPart, args: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Run a tool under the policy: what the framework gets for it. Raises what the framework's deferrals are."""
        id, arguments = call.tool_call_id, wire.arguments(call)
        if not self._knows(id):
            self._adopt(ctx, id)
        waits = self._waiting.pop(id, None)
        if waits is not None and waits.how == "asked" and ctx.tool_call_approved:
            self.session.answer(id, True, None if arguments == waits.arguments else arguments)
        if not self._knows(id) and self.session.outcome is None:
            return REFUSALS["stopped"]
        acts = self.session.tool(id, call.tool_name, arguments)
        came: Ran | None = None
        while True:
            try:
                act = acts.send(came)  # type: ignore[arg-type]
            except StopIteration as over:
                return self._came(id, arguments, over.value)
            came = None
            if isinstance(act, Sleep):
                await asyncio.sleep(max(0, act.until - self.governor.clock()) / 1000)
            else:
                came = await self._execute(act, call.tool_name, args, handler)

    async def _execute(self, act: Run, name: str, args: Any, handler: Callable[[Any], Awaitable[Any]]) -> Ran:
        limit = asyncio.timeout(max(0, act.execution.deadline - self.governor.clock()) / 1000)
        try:
            async with limit:
                value = await handler(args)
        except (CallDeferred, ApprovalRequired) as exc:
            return Ran("deferred", value=exc)
        except (ToolRetryError, ModelRetry, ToolFailedError, ToolFailed) as exc:
            return Ran("failed", str(exc), value=exc)
        except SkipToolExecution as exc:
            value = exc.result
        except UserError:  # a mistake in the program, of which a model knows nothing
            raise
        except Exception as exc:
            if isinstance(exc, TimeoutError) and limit.expired():
                return Ran("timed_out", REFUSALS["timed_out"], REFUSALS["timed_out"])
            result = failure(name, exc)
            return Ran(result.status, result.text, result.text, result.usage, result.ends)
        return wire.ran(value)

    def _came(self, id: str, arguments: str, result: Result) -> Any:
        if result.asked is not None:
            self._waiting[id] = Waiting(_how(result.asked), arguments)
            raise ApprovalRequired()
        if result.ran is None:
            return result.refused
        if result.ran.status == "deferred":
            self._waiting[id] = Waiting("elsewhere", arguments)
        if isinstance(result.ran.value, BaseException):
            raise result.ran.value
        return result.ran.value

    def _knows(self, id: str) -> bool:
        return id in self._waiting or id in self._replies or self.session.knows(id)

    def _adopt(self, ctx: RunContext[Any], id: str) -> None:
        """Take up a reply of a run that another process has begun: its counters begin with that reply."""
        for message in reversed(ctx.messages):
            if isinstance(message, ModelResponse) and any(each.tool_call_id == id for each in message.tool_calls):
                self._took_up(ctx, message)
                return

    def _took_up(self, ctx: RunContext[Any], response: ModelResponse) -> None:
        if self.session.used.llm_calls or self.session.outcome is not None:
            return
        acts = self.session.call(Wanted(self.own, response.model_name or ""))
        with suppress(StopIteration):
            if not isinstance(next(acts), Send):
                acts.close()
                return
            came = wire.replied(response, ModelRequestParameters(function_tools=self._definitions(ctx)), ctx)
            if isinstance(came, Replied):
                self._conclude(acts, came)

    def _definitions(self, ctx: RunContext[Any]) -> list[ToolDefinition]:
        manager = ctx.tool_manager
        return [] if manager is None or manager.tools is None else [each.tool_def for each in manager.tools.values()]

    # The end.

    def is_suspended(self) -> tuple[str, ...]:
        """The calls that a later run is to bring answers or results for."""
        return tuple(id for id, each in self._waiting.items() if self.session.outcome is None)

    def over(self, output: Any) -> None:
        """The framework's run has come to its end."""
        if self._held is not None:
            acts, came = self._held
            self._held = None
            self._conclude(acts, came)
        if not (isinstance(output, DeferredToolRequests) and self.is_suspended()):
            self.left("host")

    def left(self, cause: str) -> None:
        """Nobody goes on with the run. What has ended before stays as it is."""
        if self.session.outcome is None:
            self.session.cancel(cause)
        if not self._known:
            self._known = True
            outcome = self.session.outcome
            if self._on_end is not None and outcome is not None:
                self._on_end(outcome)


def _how(verdict: Execute | Ask) -> Literal["open", "asked", "elsewhere"]:
    if isinstance(verdict, Ask):
        return "elsewhere" if verdict.external else "asked"
    return "open"


def _stub(name: str) -> ToolsetTool[Any]:
    """A tool that nobody has, so that the framework comes to ask for it."""
    return ToolsetTool(toolset=_NOWHERE, tool_def=ToolDefinition(name=name), max_retries=1, args_validator=_ANYTHING)


def summed(used: Iterable[RequestUsage]) -> RequestUsage:
    """The usage of several responses."""
    total = RequestUsage()
    for each in used:
        total = total + each
    return total
