"""A policy over loops that call LiteLLM: ``guard(policy, models)``.

Each run has a ``completion`` (or ``acompletion``) of its own, which takes what LiteLLM's does. LiteLLM's retries and
fallbacks are off for these calls, and so are those of a ``Router``: the policy has its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Unpack

try:
    import litellm
    from litellm import ModelResponse
    from litellm.types.utils import ModelResponseStream
except ImportError as exc:
    raise ImportError("loops with LiteLLM need it: pip install 'policy-lang[litellm]'") from exc

from engine.adapters.acts import Answer, Send, Sleep
from engine.adapters.sdk import AsyncRun, Base, Guard, Run
from engine.adapters.sdk_openai import declared, read, result
from engine.adapters.sdk_options import Common, Face, Options
from engine.adapters.sdk_turn import Reading, Turn, Whole
from engine.clients.sse import EventParser
from engine.clients.wire import decode
from engine.core.policy import Policy
from engine.core.state import NO_TIME
from engine.core.step import Compiled
from engine.gateway.openai_wire import OpenAIWire
from engine.gateway.wires import Json

HOST = "litellm"
_FACE = Face(HOST, OpenAIWire(), "", (), lambda path, body: body, read, result, declared)
_OFF: Json = {"num_retries": 0, "max_retries": 0, "fallbacks": None}
_log = logging.getLogger("policy.adapters")


def guard(
    policy: Policy | Compiled,
    models: Mapping[str, str | Mapping[str, Any]],
    *,
    router: Any = None,
    **options: Unpack[Common],
) -> LiteLLMGuard:
    """A policy over loops with LiteLLM.

    ``models`` are those that the policy names, the loop's own first: LiteLLM's name of each, or what
    ``litellm.completion`` takes for it (``model``, ``api_base``, ``api_key`` …). ``router``: calls go through this
    ``litellm.Router``. ``options``: see ``engine.adapters.sdk_options.Common``.

    Raises:
        RunError: the policy names a model that is not there.
        TypeError: there are no models, or the policy is none.
    """
    if not isinstance(models, Mapping) or not models:
        raise TypeError('`models` are models by name, the loop\'s own first: {"main": "openai/gpt-4o"}')
    return LiteLLMGuard(policy, models, router, options)


class LiteLLMGuard(Guard[None]):
    """What ``guard`` gives: ``run()`` for loops that block, ``arun()`` for those that wait on an event loop."""

    def __init__(
        self, policy: Policy | Compiled, models: Mapping[str, str | Mapping[str, Any]], router: Any, options: Common
    ) -> None:
        self.settings = {name: {"model": m} if isinstance(m, str) else dict(m) for name, m in models.items()}
        first, *others = self.settings
        names: dict[str, Any] = {name: str(self.settings[name]["model"]) for name in others}
        more: Options = {**options, "name": first, "models": names}
        super().__init__(_FACE, None, policy, more)
        self.router = router
        for sentence in _fights(router):
            _log.warning("policy `%s` on %s: %s", self.governor.policy.name, HOST, sentence)

    def run(self, *, thread: str | None = None, id: str | None = None) -> LiteLLMRun:
        """A run that begins: ``with guard.run(thread="...") as run``; see ``engine.adapters.sdk.Guard``."""
        return LiteLLMRun(self, thread, id)

    def arun(self, *, thread: str | None = None, id: str | None = None) -> AsyncLiteLLMRun:
        """The same for a loop of coroutines."""
        return AsyncLiteLLMRun(self, thread, id)


class LiteLLMRun(Run[None]):
    """One run: ``completion`` in place of ``litellm.completion``, ``tool`` for tools."""

    guard: LiteLLMGuard

    def completion(self, *, messages: list[Any], stream: bool = False, **settings: Any) -> Any:
        """As ``litellm.completion``: a reply, or an iterator of its pieces. The model is the guard's first."""
        turn = self.turn(_body(self, messages, stream, settings))
        found = self._respond(turn)
        return found if stream else next(found)

    def _respond(self, turn: Turn) -> Iterator[Any]:
        again, answer, shown = True, Answer(), Shown()
        while again:
            acts = turn.call(self.unheard())
            try:
                act = next(acts)
                while True:
                    came: Any = None
                    if isinstance(act, Send):
                        reading = turn.reading(act.call)
                        yield from self._attempt(reading, shown)
                        came = reading.came
                    elif isinstance(act, Sleep):
                        time.sleep(max(0, act.until - self.clock()) / 1000)
                    else:
                        came = self.advise(act, turn.neutral)
                    act = acts.send(came)
            except StopIteration as over:
                answer = over.value
            finally:
                acts.close()
            again = answer.outcome is None and turn.again(self.judged(answer, turn))
        yield from shown.end(self.ended(turn, answer), turn, answer)

    def _attempt(self, reading: Reading, shown: Shown) -> Iterator[Any]:
        call: Any = self.guard.router.completion if self.guard.router is not None else litellm.completion
        deadline = reading.call.deadline
        try:
            response = call(**_request(self.guard, reading, self.clock()))
            if not reading.begins(200, "text/event-stream"):
                return shown.whole(reading, response)
            for chunk in response:
                yield from shown.pieces(reading.feed(_event(chunk)))
                if self.clock() > deadline:
                    raise TimeoutError("the time for this call is over")
        except Exception as exc:
            return reading.broke(exc)
        return reading.fed()


class AsyncLiteLLMRun(AsyncRun[None]):
    """One run: ``acompletion`` in place of ``litellm.acompletion``, ``tool`` for tools."""

    guard: LiteLLMGuard

    async def acompletion(self, *, messages: list[Any], stream: bool = False, **settings: Any) -> Any:
        """As ``litellm.acompletion``: a reply, or an iterator of its pieces. The model is the guard's first."""
        turn = self.turn(_body(self, messages, stream, settings))
        found = self._respond(turn)
        return found if stream else await anext(found)

    async def _respond(self, turn: Turn) -> AsyncIterator[Any]:
        again, answer, shown = True, Answer(), Shown()
        while again:
            acts = turn.call(self.unheard())
            try:
                act = next(acts)
                while True:
                    came: Any = None
                    if isinstance(act, Send):
                        reading = turn.reading(act.call)
                        async for piece in self._attempt(reading, shown):
                            yield piece
                        came = reading.came
                    elif isinstance(act, Sleep):
                        await asyncio.sleep(max(0, act.until - self.clock()) / 1000)
                    else:
                        came = await self.advise(act, turn.neutral)
                    act = acts.send(came)
            except StopIteration as over:
                answer = over.value
            finally:
                acts.close()
            again = answer.outcome is None and turn.again(await self.judged(answer, turn))
        for piece in shown.end(self.ended(turn, answer), turn, answer):
            yield piece

    async def _attempt(self, reading: Reading, shown: Shown) -> AsyncIterator[Any]:
        call: Any = self.guard.router.acompletion if self.guard.router is not None else litellm.acompletion
        deadline = reading.call.deadline
        try:
            response = await self._in_time(deadline, call(**_request(self.guard, reading, self.clock())))
            if not reading.begins(200, "text/event-stream"):
                shown.whole(reading, response)
                return
            chunks = aiter(response)
            while (chunk := await self._in_time(deadline, anext(chunks, None))) is not None:
                for piece in shown.pieces(reading.feed(_event(chunk))):
                    yield piece
        except Exception as exc:
            reading.broke(exc)
        else:
            reading.fed()

    async def _in_time(self, deadline: int, waited: Any) -> Any:
        if deadline >= NO_TIME:
            return await waited
        async with asyncio.timeout(max(0, deadline - self.clock()) / 1000):
            return await waited


class Shown:
    """What a loop gets of a response, in LiteLLM's own kinds."""

    def __init__(self) -> None:
        self._parser = EventParser()
        self._last: Any = None

    def pieces(self, data: bytes) -> list[Any]:
        """Pieces of a stream."""
        events = (event.data for event in self._parser.feed(data))
        return [ModelResponseStream(**decode(each)) for each in events if each != b"[DONE]"]

    def whole(self, reading: Reading, response: Any) -> None:
        """A whole response has come."""
        self._last = response
        reading.whole(Whole(200, {}, response.model_dump_json().encode()))

    def end(self, end: bytes | Whole, turn: Turn, answer: Answer) -> list[Any]:
        """The end of a response: the last pieces, or all of it."""
        if isinstance(end, bytes):
            return self.pieces(end)
        calls = answer.reply.message.tool_calls if answer.reply is not None else ()
        if answer.reply is not None and len(calls) == len(turn.kept if answer.outcome is None else ()):
            return [self._last]
        return [ModelResponse(**decode(end.content))]


def _body(run: Base[None], messages: list[Any], stream: bool, settings: Json) -> Json:
    plain = [m if isinstance(m, dict) else m.model_dump(exclude_none=True) for m in messages]
    settings.pop("model", None)
    more = {"stream": True} if stream else {}
    return {**run.guard.settings[run.guard.name], **settings, "messages": plain, **more}  # type: ignore[attr-defined]


def _request(guard: LiteLLMGuard, reading: Reading, now: int) -> Json:
    """What an attempt gives to LiteLLM."""
    call, body = reading.call, reading.body
    if call.client != guard.name:
        body = {key: value for key, value in body.items() if key not in guard.settings[guard.name]}
        body = {**body, **guard.settings[call.client]}
    left = {} if call.deadline >= NO_TIME else {"timeout": max(0.001, (call.deadline - now) / 1000)}
    off = _OFF if guard.router is None else {"num_retries": 0, "fallbacks": []}
    return {**body, **left, **off}


def _event(chunk: Any) -> bytes:
    data: str = chunk.model_dump_json(exclude_none=True)
    return b"data: " + data.encode() + b"\n\n"


def _fights(router: Any) -> list[str]:
    """What else would call models again."""
    found = []
    if router is not None and (getattr(router, "num_retries", None) or getattr(router, "fallbacks", None)):
        found.append("the Router's own retries and fallbacks are off for these calls: the policy has its own")
    if litellm.num_retries or litellm.model_fallbacks:
        found.append("`litellm.num_retries` and `model_fallbacks` are off for these calls: the policy has its own")
    return found


__all__ = ["HOST", "AsyncLiteLLMRun", "LiteLLMGuard", "LiteLLMRun", "guard"]
