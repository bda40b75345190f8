"""One run of an agent of the Microsoft Agent Framework: its middleware around calls of the model and around tools.

Carries out what the run's session says; which runs there are is the business of ``middleware``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
)
from agent_framework.exceptions import UserInputRequiredException

from engine.adapters.acts import Answer, Consult, Kind, Ran, Replied, Run, Send, Sleep, Wanted
from engine.adapters.agent_framework.words import (
    Unknown,
    answer_of,
    characters_of,
    contents_of,
    failure_of,
    id_of,
    json_of,
    message_of,
    occurrence_of,
    options_of,
    problem_of,
    reply_of,
    rest_of,
    stand_in,
    text_of,
    tools_of,
)
from engine.adapters.carrying import carried
from engine.adapters.governor import Governor
from engine.adapters.session import Session
from engine.core import messages as m
from engine.core.decisions import Ask, Call
from engine.core.state import NO_TIME
from engine.run import sizes
from engine.run.results import failure

Next = Callable[[], Awaitable[None]]
Pieces = ResponseStream[ChatResponseUpdate, ChatResponse[Any]]


class GovernedRun:
    """A run, from ``agent.run`` to its end, with what the hooks have to remember of it."""

    def __init__(
        self,
        governor: Governor,
        session: Session,
        main: str,
        others: Mapping[str, Any],
        keep: Callable[[], None] | None,
    ) -> None:
        self.session = session
        self.told = False
        self.keep: Callable[[], None] = keep or (lambda: None)
        self._governor, self._main, self._others = governor, main, others
        self._sizes: dict[int, int] = {}
        self._parts: dict[int, tuple[Content, int]] = {}
        self._arguments: dict[str, str] = {}
        """Arguments as the model wrote them, by the ids of calls."""
        self._verdicts: dict[str, Any] = {}
        self._refused: dict[str, str] = {}
        """What stands for a tool that a person has refused, by the ids of calls."""

    # Calls of the model.

    async def called(self, context: ChatContext, call_next: Next) -> ChatResponse[Any]:
        """One call that the framework's loop makes, as the policy has it."""
        last: list[ChatResponse[Any]] = []
        attempt = _Attempt(self, context, call_next)

        async def perform(act: Send | Sleep | Consult) -> Any:
            if not isinstance(act, Send):
                return await self._between(act, context)
            try:
                async with asyncio.timeout(self._seconds(act.call)):
                    response = await attempt.sent(act.call)
            except Exception as exc:
                return failure_of(exc)
            last[:] = [response]
            return self._replied(response, context)

        answer = await carried(self.session.call(self._wanted(context)), perform)
        self._verdicts = dict(answer.verdicts)
        self.keep()
        return answer_of(answer, last[0] if last else None)

    async def streamed(self, context: ChatContext, call_next: Next) -> AsyncIterator[ChatResponseUpdate]:
        """The same, piece by piece; calls of tools are held back until there is a verdict on them."""
        attempt, acts = _Attempt(self, context, call_next), self.session.call(self._wanted(context))
        held: list[ChatResponseUpdate] = []
        said = False
        result: Any = None
        try:
            while True:
                act = acts.send(result)
                if not isinstance(act, Send):
                    result = await self._between(act, context)
                    continue
                held, text = [], ""
                try:
                    async with asyncio.timeout(self._seconds(act.call)):
                        stream = await attempt.opened(act.call)
                    async with stream:
                        while (update := await self._piece(act.call, stream)) is not None:
                            if any(content.type == "function_call" for content in update.contents):
                                held.append(update)
                                continue
                            text += update.text
                            said = said or bool(update.text)
                            yield update
                        response = await stream.get_final_response()
                    result = self._replied(response, context)
                except Exception as exc:
                    result = failure_of(exc, text)
        except StopIteration as over:
            answer: Answer = over.value
        finally:
            acts.close()
        self._verdicts = dict(answer.verdicts)
        self.keep()
        for update in held if answer.outcome is None else rest_of(answer, said):
            yield update

    async def _piece(self, call: Call, stream: Pieces) -> ChatResponseUpdate | None:
        """The next piece, ``None`` after the last. The time of whoever reads is not bounded."""
        async with asyncio.timeout(self._seconds(call)):
            return await anext(stream, None)

    def _wanted(self, context: ChatContext) -> Wanted:
        options = context.options or {}
        sent = sum([self._characters(content) for each in context.messages for content in each.contents])
        sent += len(options.get("instructions") or "") + sum(map(self._declared, tools_of(context)))
        return Wanted(self._main, str(options.get("model") or ""), sizes.tokens(sent), options.get("max_tokens"))

    def _characters(self, content: Content) -> int:
        """How many characters a part of a message has: looked at once a run, since every call sends all again."""
        if (known := self._parts.get(id(content))) is None:
            known = self._parts[id(content)] = (content, characters_of(content))
        return known[1]

    def _declared(self, tool: Any) -> int:
        """How many characters the declaration of a tool has: looked at once a run."""
        if not isinstance(tool, FunctionTool) or isinstance(tool, Unknown):
            return 0
        if (known := self._sizes.get(id(tool))) is None:
            spec = m.ToolSpec(tool.name, tool.description or "", tool.parameters())
            known = self._sizes[id(tool)] = sizes.declared([spec])
        return known

    def _seconds(self, call: Call) -> float | None:
        return None if call.deadline >= NO_TIME else max(0.0, (call.deadline - self._governor.clock()) / 1000)

    async def _between(self, act: Sleep | Consult, context: ChatContext) -> Any:
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self._governor.clock()) / 1000)
        return await self._governor.advise(self.session, act, [message_of(each) for each in context.messages])

    def client_of(self, call: Call) -> Any:
        """The client of a call, ``None`` for the agent's own."""
        return None if call.client == self._main else self._others[call.client]

    def with_refusals(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with the policy's own words where a person has refused a tool."""
        if not any(self._refused.values()):
            return list(messages)
        return [self._with_refusal(each) if each.role == "tool" else each for each in messages]

    def _with_refusal(self, message: Message) -> Message:
        contents = [
            Content.from_function_result(each.call_id or "", id=each.id, result=text)
            if each.type == "function_result" and (text := self._refused.get(each.call_id or ""))
            else each
            for each in message.contents
        ]
        return Message("tool", contents, message_id=message.message_id)

    def _replied(self, response: ChatResponse[Any], context: ChatContext) -> Replied:
        calls = [each for each in contents_of(response) if each.type == "function_call" and not each.informational_only]
        tools = {tool.name: tool for tool in tools_of(context) if isinstance(tool, FunctionTool)}
        known = {name for name, tool in tools.items() if not isinstance(tool, Unknown)}
        self._arguments = {id_of(each): json_of(each.arguments) for each in calls}
        kinds: dict[str, Kind] = {}
        problems: dict[str, str] = {}
        for each in calls:
            tool = tools.get(each.name or "")
            if each.hosted:
                kinds[id_of(each)] = "hosted"
            elif tool is not None and tool.declaration_only:
                kinds[id_of(each)] = "external"
            elif tool is not None and (problem := problem_of(tool, self._arguments[id_of(each)])):
                problems[id_of(each)] = problem
        unknown = [each for each in calls if not each.hosted and (each.name or "") not in known]
        stand_in(context, {each.name or "": None for each in unknown if (each.name or "") not in tools})
        return Replied(reply_of(response, calls, self._arguments), kinds, frozenset(map(id_of, unknown)), problems)

    # Tools.

    async def ran(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """One tool that the framework's loop runs, as the policy has it."""
        id, name = str(context.metadata["call_id"]), context.function.name
        if id not in self._arguments:
            context.result = f"The tool `{name}` was not run: nobody knows the run that asked for it."
            return
        raised: list[BaseException] = []

        async def perform(act: Run | Sleep) -> Any:
            if isinstance(act, Sleep):
                return await asyncio.sleep(max(0, act.until - self._governor.clock()) / 1000)
            return await self._execution(context, call_next, act, raised)

        registered = not isinstance(context.function, Unknown)
        tool = partial(self.session.tool, id, name, self._arguments[id], registered=registered)
        result = await carried(tool(), perform)
        if result.asked is not None and "approval_response" in context.metadata:  # somebody has said yes just now
            self.session.answer(id, True)
            result = await carried(tool(), perform)
        if raised:
            raise raised[0]
        if result.asked is not None:
            call = Content.from_function_call(
                call_id=id, name=name, arguments=self._arguments[id], id=occurrence_of(context)
            )
            context.result = Content.from_function_approval_request(id=call.id or id, function_call=call)
        elif result.ran is None:
            context.result = result.refused
        else:
            context.result = result.ran.value

    async def _execution(
        self, context: FunctionInvocationContext, call_next: Next, act: Run, raised: list[BaseException]
    ) -> Ran:
        name, deadline = context.function.name, act.execution.deadline
        seconds = None if deadline >= NO_TIME else max(0.0, (deadline - self._governor.clock()) / 1000)
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await call_next()
        except (
            MiddlewareFailure,
            MiddlewareTermination,
            UserInputRequiredException,
        ) as exc:  # the framework's own ways
            raised.append(exc)
            return Ran("ok" if isinstance(exc, MiddlewareTermination) else "cancelled")
        except Exception as exc:
            if limit.expired():
                text = f"The tool `{name}` did not end in time."
                return Ran("timed_out", text, text)
            came = failure(name, exc)
            return Ran(came.status, came.text, came.text, came.usage, came.ends)
        return Ran("ok", text_of(context.result), context.result)

    def answered(self, response: Content) -> None:
        """A person has said whether a tool may run. The framework runs it itself after a yes."""
        call = response.function_call
        if call is None or self.session.outcome is not None:
            return
        id, granted = call.call_id or "", bool(response.approved)
        if isinstance(self._verdicts.get(id), Ask):
            self.session.answer(id, granted)
            self._verdicts.pop(id)
        if granted:
            return
        refused = self.session.tool(id, call.name or "", self._arguments.get(id, ""))
        try:
            next(refused)
            refused.send(Ran("cancelled", "refused"))
        except StopIteration as over:
            self._refused[id] = over.value.refused


class Chat(ChatMiddleware):
    """The framework's hook around one call of a chat client, for one run."""

    def __init__(self, run: GovernedRun) -> None:
        self._run = run

    async def process(self, context: ChatContext, call_next: Next) -> None:
        if context.stream:
            form = (context.options or {}).get("response_format")
            finalizer = partial(ChatResponse.from_updates, output_format_type=form)
            context.result = ResponseStream(self._run.streamed(context, call_next), finalizer=finalizer)
        else:
            context.result = await self._run.called(context, call_next)


class Tools(FunctionMiddleware):
    """The framework's hook around one execution of a tool, for one run. What fails here stops the run."""

    def __init__(self, run: GovernedRun) -> None:
        self._run = run

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        try:
            await self._run.ran(context, call_next)
        except (MiddlewareFailure, MiddlewareTermination, UserInputRequiredException):
            raise
        except Exception as exc:
            raise MiddlewareFailure(f"the policy could not judge the tool `{context.function.name}`: {exc}") from exc


class _Attempt:
    """Sends attempts of one call; the hook's context is as it was after each."""

    def __init__(self, run: GovernedRun, context: ChatContext, call_next: Next) -> None:
        self._run, self._context, self._next = run, context, call_next
        self._messages, self._options = context.messages, context.options

    async def sent(self, call: Call) -> Any:
        """What the client gives: a response, or a stream of one."""
        context, run = self._context, self._run
        messages = [*run.with_refusals(self._messages), *(Message("user", [text]) for text in call.notices)]
        if call.instruction:
            messages.append(Message("user", [call.instruction]))
        options = options_of(self._options or {}, call)
        client = run.client_of(call)
        if client is None:
            context.messages, context.options = messages, options
            try:
                await self._next()
            finally:
                context.messages, context.options = self._messages, self._options
            return context.result
        if options.pop("conversation_id", None) is not None:
            raise ValueError(f"client `{call.client}` does not have the conversation that the agent's provider keeps")
        options.pop("model", None)
        given = {key: value for key, value in context.kwargs.items() if key not in ("compaction_strategy", "tokenizer")}
        return await client.get_response(messages, stream=context.stream, options=options, client_kwargs=given)

    async def opened(self, call: Call) -> Pieces:
        stream: Pieces = await self.sent(call)
        return stream
