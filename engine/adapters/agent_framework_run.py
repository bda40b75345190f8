"""One run of an agent of the Microsoft Agent Framework: its middleware around calls of the model and around tools.

Carries out what the run's session says; which runs there are is the business of ``agent_framework``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
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
from pydantic import BaseModel, ValidationError

from engine.adapters.acts import Answer, Consult, Failed, Kind, Ran, Replied, Run, Send, Sleep, Wanted
from engine.adapters.carrying import carried
from engine.adapters.governor import Governor
from engine.adapters.raised import failed, misfit
from engine.adapters.session import Session, stopped
from engine.core import messages as m
from engine.core.decisions import Call
from engine.core.state import NO_TIME
from engine.run import sizes
from engine.run.hooks import without_tool_control
from engine.run.results import failure

Next = Callable[[], Awaitable[None]]
_REASONS = (("ContentFilter", "content_filter"), ("InvalidAuth", "auth"), ("InvalidRequest", "invalid_request"))
"""What the framework itself calls failures, where no provider has said anything."""
_FINISHES: dict[str, m.Finish] = {"length": "length", "content_filter": "content_filter", "tool_calls": "tool_calls"}


class Unknown(FunctionTool):
    """Stands in the run's tools for one that a model has made up, so that its call comes to the middleware."""


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
        self._arguments: dict[str, str] = {}
        """Arguments as the model wrote them, by the ids of calls."""
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
                return _failed(exc)
            last[:] = [response]
            return self._replied(response, context)

        answer = await carried(self.session.call(self._wanted(context)), perform)
        self.keep()
        return _answered(answer, last[0] if last else None, context)

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
                            async for update in stream:
                                if any(content.type == "function_call" for content in update.contents):
                                    held.append(update)
                                    continue
                                text += update.text
                                said = said or bool(update.text)
                                yield update
                            response = await stream.get_final_response()
                    result = self._replied(response, context)
                except Exception as exc:
                    result = _failed(exc, text)
        except StopIteration as over:
            answer: Answer = over.value
        finally:
            acts.close()
        self.keep()
        for update in held if answer.outcome is None else _rest(answer, said):
            yield update

    def _wanted(self, context: ChatContext) -> Wanted:
        options = context.options or {}
        sent = sum(_characters(content) for each in context.messages for content in each.contents)
        sent += len(options.get("instructions") or "") + sum(map(self._declared, _tools(context)))
        return Wanted(self._main, str(options.get("model") or ""), sizes.tokens(sent), options.get("max_tokens"))

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
        return await self._governor.advise(self.session, act, [_message(each) for each in context.messages])

    def client_of(self, call: Call) -> Any:
        """The client of a call, ``None`` for the agent's own."""
        return None if call.client == self._main else self._others[call.client]

    def with_refusals(self, messages: Sequence[Message]) -> list[Message]:
        """The messages with the policy's own words where a person has refused a tool."""
        if not self._refused:
            return list(messages)
        return [self._with_refusal(each) if each.role == "tool" else each for each in messages]

    def _with_refusal(self, message: Message) -> Message:
        contents = [
            Content.from_function_result(call_id=each.call_id, id=each.id, result=self._refused[each.call_id])
            if each.type == "function_result" and each.call_id in self._refused
            else each
            for each in message.contents
        ]
        return Message("tool", contents, message_id=message.message_id)

    def _replied(self, response: ChatResponse[Any], context: ChatContext) -> Replied:
        calls = [each for each in _contents(response) if each.type == "function_call" and not each.informational_only]
        tools = {tool.name: tool for tool in _tools(context) if isinstance(tool, FunctionTool)}
        known = {name for name, tool in tools.items() if not isinstance(tool, Unknown)}
        self._arguments = {_id(each): _json(each.arguments) for each in calls}
        kinds: dict[str, Kind] = {}
        problems: dict[str, str] = {}
        for each in calls:
            tool = tools.get(each.name or "")
            if each.hosted:
                kinds[_id(each)] = "hosted"
            elif tool is not None and tool.declaration_only:
                kinds[_id(each)] = "external"
            elif tool is not None and (problem := _problem(tool, self._arguments[_id(each)])):
                problems[_id(each)] = problem
        unknown = [each for each in calls if not each.hosted and (each.name or "") not in known]
        _stand_in(context, {each.name or "": None for each in unknown if (each.name or "") not in tools})
        return Replied(_reply(response, calls, self._arguments), kinds, frozenset(map(_id, unknown)), problems)

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
        acts = self.session.tool(id, name, self._arguments[id], registered=registered)
        result = await carried(acts, perform)
        if raised:
            raise raised[0]
        if result.asked is not None:
            call = Content.from_function_call(
                call_id=id, name=name, arguments=self._arguments[id], id=_occurrence(context)
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
        return Ran("ok", _text(context.result), context.result)

    def answered(self, response: Content) -> None:
        """A person has said whether a tool may run."""
        call = response.function_call
        if call is None or self.session.outcome is not None:
            return
        id = call.call_id or ""
        self.session.answer(id, bool(response.approved))
        if not response.approved:
            refusal = self.session.tool(id, call.name or "", self._arguments.get(id, ""))
            try:
                next(refusal)
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
        options = _options(self._options or {}, call)
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

    async def opened(self, call: Call) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        stream: ResponseStream[ChatResponseUpdate, ChatResponse[Any]] = await self.sent(call)
        return stream


def _options(options: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The options of one attempt: without tools for a final call, and never with those that only stand in."""
    given = dict(options)
    if call.final:
        given = without_tool_control(given)
        given.pop("allow_multiple_tool_calls", None)
    elif isinstance(tools := given.get("tools"), list):
        given["tools"] = [
            tool for tool in tools if not isinstance(tool, Unknown) and getattr(tool, "name", None) not in call.hidden
        ] or None
    largest = given.get("max_tokens")
    if call.max_output is not None and (largest is None or largest > call.max_output):
        given["max_tokens"] = call.max_output
    return given


def _tools(context: ChatContext) -> list[Any]:
    tools = (context.options or {}).get("tools")
    return list(tools) if isinstance(tools, list | tuple) else []


def _stand_in(context: ChatContext, names: Mapping[str, None]) -> None:
    """Puts tools that do not exist among the run's own, for the framework answers calls of them without asking."""
    if not names:
        return
    made = [Unknown(name=name, func=_nothing, input_model={"type": "object", "properties": {}}) for name in names]
    options: Any = context.options
    live = options.get("tools")
    if isinstance(live, list):
        live.extend(made)
    else:
        options["tools"] = made


def _nothing() -> str:
    raise MiddlewareFailure("a tool that does not exist was to be run")


def _problem(tool: FunctionTool, arguments: str) -> str:
    """Why the framework would not take the arguments, in words."""
    model = tool.input_model
    try:
        if model is None:
            json.loads(arguments or "{}")
        else:
            model.model_validate_json(arguments or "{}")
    except ValidationError as exc:
        assert model is not None
        return "; ".join((misfit(exc), *_extra(model, arguments)))
    except ValueError as exc:
        return str(exc)
    return ""


def _extra(model: type[BaseModel], arguments: str) -> Iterator[str]:
    """What the tool does not declare, where its arguments do not fit anyhow."""
    try:
        given = json.loads(arguments or "{}")
    except ValueError:
        return
    for name in given if isinstance(given, dict) else ():
        if name not in model.model_fields:
            yield f"`{name}`: Extra inputs are not permitted"


# What comes and goes, in the engine's words.


def _reply(response: ChatResponse[Any], calls: Sequence[Content], arguments: Mapping[str, str]) -> m.Reply:
    asked = tuple(m.ToolCall(_id(each), each.name or "", arguments[_id(each)]) for each in calls)
    finish = _FINISHES.get(str(response.finish_reason or ""), "stop")
    return m.Reply(
        m.Message("assistant", response.text, asked), finish, _usage(response.usage_details), response.model or ""
    )


def _usage(details: Mapping[str, Any] | None) -> m.Usage | None:
    if not details:
        return None
    keys = ("input_token_count", "output_token_count", "cache_read_input_token_count")
    more = ("cache_creation_input_token_count", "reasoning_output_token_count")
    return m.Usage(*(int(details.get(key) or 0) for key in (*keys, *more)))


def _answered(answer: Answer, last: ChatResponse[Any] | None, context: ChatContext) -> ChatResponse[Any]:
    """What the framework's loop gets: the reply, or the end's text without any call."""
    if answer.outcome is None:
        assert last is not None
        return last
    if answer.reply is not None and last is not None and not answer.reply.message.tool_calls:
        return last
    usage = last.usage_details if last is not None else None
    return ChatResponse(messages=[Message("assistant", [answer.text])], usage_details=usage, finish_reason="stop")


def _rest(answer: Answer, said: bool) -> list[ChatResponseUpdate]:
    """What a stream still has to say at the run's end."""
    assert answer.outcome is not None
    if answer.outcome.status in ("completed", "finalized"):
        text = "" if said else answer.text
    else:
        text = ("\n" if said else "") + stopped(answer.outcome)
    return [ChatResponseUpdate(contents=[Content.from_text(text)], role="assistant")] if text else []


def _failed(exc: Exception, text: str = "") -> Failed:
    name = type(exc).__name__
    otherwise = next((reason for word, reason in _REASONS if word in name), "unknown")
    return failed(exc, text=text, delivered=bool(text), otherwise=otherwise)


def _message(message: Message) -> m.Message:
    role: Any = message.role if message.role in ("system", "user", "assistant", "tool") else "user"
    return m.Message(role, message.text)


def _contents(response: ChatResponse[Any]) -> list[Content]:
    return [content for message in response.messages for content in message.contents]


def _characters(content: Content) -> int:
    """How many characters of a message's part a model reads."""
    if content.type == "function_call":
        return len(content.name or "") + len(_json(content.arguments))
    if content.type == "function_result":
        return len(_text(content.result))
    return len(content.text or "")


def _id(call: Content) -> str:
    return call.call_id or call.id or ""


def _json(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments or {}, default=str)


def _text(result: Any) -> str:
    if isinstance(result, list):
        return "\n".join(getattr(each, "text", None) or "" for each in result)
    return str(result)


def _occurrence(context: FunctionInvocationContext) -> str | None:
    return context.metadata.get("function_call_occurrence_id")
