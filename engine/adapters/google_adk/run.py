"""One run under a policy in Google ADK: its calls of models and its tools, carried out as the run's session says.

Which runs there are is the business of ``plugin``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

from google.adk.flows.llm_flows.tools._error_handler import run_on_tool_error_callbacks
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools._confirmation_utils import apply_confirmation_gate
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.utils._sync_runner import _use_sync_callable_context

from engine.adapters.acts import Answer, Consult, Kind, Ran, Replied, Run, Send, Sleep, Wanted
from engine.adapters.carrying import carried
from engine.adapters.google_adk import words
from engine.adapters.governor import Governor
from engine.adapters.session import Session
from engine.core.decisions import Ask, Call, Reply
from engine.core.messages import Usage
from engine.core.state import NO_TIME
from engine.run import sizes
from engine.run.results import failure

ASKED = {"error": "This tool call requires confirmation, please approve or reject."}
"""The framework's own placeholder for a tool that waits for a person."""


class Within:
    """A tool that is being run, for whatever is called while it is."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    @property
    def usage(self) -> Usage | None:
        """What its own runs have used by now."""
        each = [session.used for session in self.sessions]
        names = (("input", "input_tokens"), ("output", "output_tokens"), ("cached", "cached"))
        more = (("cache_write", "cache_write"), ("reasoning", "reasoning"))
        sums = {ours: sum(getattr(used, theirs) for used in each) for ours, theirs in (*names, *more)}
        return Usage(**sums) if any(sums.values()) else None


WITHIN: ContextVar[Within | None] = ContextVar("policy_google_adk_within", default=None)


class GovernedRun:
    """A run, with what the hooks have to remember of it. ``over`` is told when it has ended."""

    def __init__(
        self,
        governor: Governor,
        session: Session,
        clients: Mapping[str, BaseLlm],
        over: Callable[[GovernedRun], None],
    ) -> None:
        self.session = session
        self.waiting: set[str] = set()
        """Tool calls that a person is asked about, by their ids."""
        self.told = False
        self._governor, self._clients, self._over = governor, clients, over
        self._verdicts: dict[str, Any] = {}
        self._sizes: tuple[int, int] = (0, 0)

    # Calls of models.

    async def called(
        self, request: LlmRequest, name: str, model: BaseLlm, stream: bool
    ) -> AsyncGenerator[LlmResponse, None]:
        """One call that an agent wants of its ``model``, as the policy has it: pieces first, if ``stream``."""
        acts = self.session.call(self._wanted(request, name, model), self._answered(request))
        result: Any = None
        last: LlmResponse | None = None
        try:
            while True:
                act = acts.send(result)
                if not isinstance(act, Send):
                    result = await self._between(act, request)
                    continue
                last, text = None, ""
                held: list[LlmResponse] = []
                own = act.call.client == name or act.call.client not in self._clients
                chosen = model if own else self._clients[act.call.client]
                sent = words.request_of(request, act.call, (request.model or model.model) if own else chosen.model)
                pieces = chosen.generate_content_async(sent, stream)
                try:
                    while (piece := await self._next(pieces, act.call)) is not None:
                        if not piece.partial:
                            held.append(piece)
                        elif not words.calls_of(piece):
                            text += words.said(piece.content)
                            yield piece
                    last = words.joined(held)
                    result = words.refusal_of(last) or self._replied(last, request)
                except Exception as exc:
                    result = words.failure_of(exc, text)
                finally:
                    await pieces.aclose()
        except StopIteration as over:
            answer: Answer = over.value
        except BaseException:  # the loop is left: cancelled, or nobody reads it any more
            self.leave()
            raise
        finally:
            acts.close()
        yield self._given(answer, last)

    def _given(self, answer: Answer, last: LlmResponse | None) -> LlmResponse:
        self._verdicts = dict(answer.verdicts)
        if answer.outcome is None:
            assert last is not None
            return last
        self._over(self)
        return words.ending(answer.outcome, answer.text, last if answer.reply is not None else None)

    def _wanted(self, request: LlmRequest, name: str, model: BaseLlm) -> Wanted:
        known, size = self._sizes
        if known != len(request.tools_dict):
            size = words.declared(request)
            self._sizes = (len(request.tools_dict), size)
        told = request.config.system_instruction
        sent = size + (len(told) if isinstance(told, str) else 0) + sum(map(words.characters_of, request.contents))
        return Wanted(name, request.model or model.model, sizes.tokens(sent), request.config.max_output_tokens)

    def _answered(self, request: LlmRequest) -> tuple[str, ...]:
        """Tool calls that have got results without a word to us, from other callbacks or from outside."""
        still = set(self.session.open)
        return tuple(each.id for each in words.answers_in(request.contents) if each.id in still) if still else ()

    async def _next(self, pieces: AsyncGenerator[LlmResponse, None], call: Call) -> LlmResponse | None:
        seconds = None if call.deadline >= NO_TIME else max(0.0, (call.deadline - self._governor.clock()) / 1000)
        async with asyncio.timeout(seconds):
            return await anext(pieces, None)

    async def _between(self, act: Sleep | Consult, request: LlmRequest) -> Any:
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self._governor.clock()) / 1000)
        return await self._governor.advise(self.session, act, words.messages_of(request))

    def _replied(self, response: LlmResponse, request: LlmRequest) -> Replied:
        words.named(response)
        kinds: dict[str, Kind] = {}
        unknown: set[str] = set()
        problems: dict[str, str] = {}
        for call in words.calls_of(response):
            id, name = call.id or "", call.name or ""
            if name not in request.tools_dict:
                unknown.add(id)
                continue
            kinds[id] = words.kind_of(name)
            if problem := words.problem_of(request.tools_dict[name], call.args or {}):
                problems[id] = problem
        return Replied(words.reply_of(response), kinds, frozenset(unknown), problems)

    # Tools.

    async def ran(self, tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> Any:
        """One tool that an agent runs, as the policy has it: its result, or what stands for that."""
        if words.kind_of(tool.name) == "output":  # the run's answer in the form of a call: the framework takes it
            return None
        id, said = context.function_call_id or "", context.tool_confirmation
        verdict = self._verdicts.get(id)
        if said is None and not isinstance(verdict, Reply | Ask):
            asked = await apply_confirmation_gate(tool, arguments, context)
            if asked is not None:
                return self._asks(id, context, asked)
        self.waiting.discard(id)
        within = Within()

        async def perform(act: Run | Sleep) -> Any:
            if isinstance(act, Sleep):
                return await asyncio.sleep(max(0, act.until - self._governor.clock()) / 1000)
            return await self._execution(tool, arguments, context, act, within)

        judged = partial(self.session.tool, id, tool.name, words.json_of(arguments))
        try:
            result = await carried(judged(), perform)
            if result.asked is not None and said is not None:
                self.session.answer(id, said.confirmed)
                self._verdicts.pop(id, None)
                result = await carried(judged(), perform)
        except asyncio.CancelledError:
            self.leave()
            raise
        if result.asked is not None:
            context.request_confirmation(hint=f"May the tool `{tool.name}` be run?")
            return self._asks(id, context, dict(ASKED))
        return {"error": result.refused} if result.ran is None else result.ran.value

    def _asks(self, id: str, context: ToolContext, placeholder: Any) -> Any:
        """Ends the invocation with the framework's question."""
        context.actions.skip_summarization = True
        self.waiting.add(id)
        return placeholder

    async def _execution(
        self, tool: BaseTool, arguments: dict[str, Any], context: ToolContext, act: Run, within: Within
    ) -> Ran:
        deadline = act.execution.deadline
        seconds = None if deadline >= NO_TIME else max(0.0, (deadline - self._governor.clock()) / 1000)
        limit = asyncio.timeout(seconds)
        token = WITHIN.set(within)
        before = len(within.sessions)
        try:
            with _use_sync_callable_context(context):
                async with limit:
                    value = await _run(tool, arguments, context)
        except Exception as exc:
            if limit.expired():
                text = f"The tool `{tool.name}` did not end in time."
                return Ran("timed_out", text, {"error": text}, within.usage)
            came = failure(tool.name, exc)
            value = await run_on_tool_error_callbacks(
                invocation_context=context._invocation_context,
                agent=context._invocation_context.agent,  # type: ignore[arg-type]
                tool=tool,
                tool_args=arguments,
                tool_context=context,
                error=exc,
            )
            return Ran(came.status, came.text, value or {"error": came.text}, came.usage or within.usage, came.ends)
        finally:
            WITHIN.reset(token)
            del within.sessions[:before]
        said = context.tool_confirmation
        if said is not None and not said.confirmed:
            return Ran("cancelled", words.text_of(value), value, within.usage)
        if value is None:
            value = {} if tool.is_long_running or tool._defers_response else {"result": None}
        return Ran("ok", words.text_of(value), value, within.usage)

    def leave(self) -> None:
        """The loop is left, and the run with it, if it has not ended."""
        self.session.cancel()
        self._over(self)


async def _run(tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> Any:
    """What the framework does for a tool when no plugin has answered for it."""
    agent: Any = context._invocation_context.agent
    for callback in agent.canonical_before_tool_callbacks:
        answer = callback(tool=tool, args=arguments, tool_context=context)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            return answer
    waits = await apply_confirmation_gate(tool, arguments, context)
    return await tool.run_async(args=arguments, tool_context=context) if waits is None else waits
