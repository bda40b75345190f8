"""Between a provider's SDK and its own HTTP client: every request of a governed client goes through here.

The SDK builds requests and reads responses as ever, so whatever it offers over an endpoint is governed. Requests that
start something which the policy could not see are refused; the rest (models, files, embeddings) passes through.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from engine.adapters.acts import Answer, Send, Sleep
from engine.adapters.sdk_turn import Reading, Turn, Whole
from engine.clients.wire import decode, encode
from engine.core.state import NO_TIME
from engine.run.errors import RunError

if TYPE_CHECKING:
    from engine.adapters.sdk import AsyncRun, Base, Run

T = TypeVar("T")
_log = logging.getLogger("policy.adapters")
_EVENTS = {"content-type": "text/event-stream"}
_OURS = ("content-length", "host", "transfer-encoding")
_UNPACKED = ("content-encoding", "content-length", "transfer-encoding")


class Transport(httpx2.BaseTransport):
    """For clients that block."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        content = request.read()
        turn = _turn(self._run, request, content)
        if turn is None:
            response = self._sent(request, content)
            return _response(_whole(response, response.read()))
        pieces = self._respond(request, turn)
        first = next(pieces)
        if isinstance(first, Whole):
            return _response(first)
        return httpx2.Response(200, headers=_EVENTS, stream=_Pieces(first, pieces))

    def _respond(self, request: httpx2.Request, turn: Turn) -> Iterator[bytes | Whole]:
        run, again, answer = self._run, True, Answer()
        while again:
            acts = turn.call(run.unheard())
            try:
                act = next(acts)
                while True:
                    came: Any = None
                    if isinstance(act, Send):
                        reading = turn.reading(act.call)
                        yield from self._attempt(request, reading)
                        came = reading.came
                    elif isinstance(act, Sleep):
                        time.sleep(max(0, act.until - run.clock()) / 1000)
                    else:
                        came = run.advise(act, turn.neutral)
                    act = acts.send(came)
            except StopIteration as over:
                answer = over.value
            finally:
                acts.close()
            again = answer.outcome is None and turn.again(run.judged(answer, turn))
        yield run.ended(turn, answer)

    def _attempt(self, request: httpx2.Request, reading: Reading) -> Iterator[bytes]:
        deadline = reading.call.deadline
        try:
            response = self._open(request, reading)
            try:
                if not reading.begins(response.status_code, response.headers.get("content-type", "")):
                    return reading.whole(_whole(response, response.read()))
                for chunk in response.iter_bytes():
                    if out := reading.feed(chunk):
                        yield out
                    if reading.over:
                        break
                    if self._run.clock() > deadline:
                        raise TimeoutError("the time for this call is over")
            finally:
                response.close()
        except Exception as exc:
            return reading.broke(exc)
        return reading.fed()

    def _open(self, request: httpx2.Request, reading: Reading) -> Any:
        extensions = _in_time(request, reading.call.deadline, self._run.clock())
        content = encode(reading.body)
        other = self._run.other(reading.call.client)
        if other is None:
            return self._sent(request, content, extensions)
        options = other._prepare_options(self._run.face.options(self._run.face.path, reading.body))
        made = other._build_request(options)
        other._prepare_request(made)
        made.extensions |= extensions
        return other._client.send(made, stream=True)

    def _sent(self, request: httpx2.Request, content: bytes, extensions: Any = None) -> Any:
        inner = self._run.inner
        made = _made(inner, request, content, extensions or request.extensions)
        return inner.send(made, stream=True)


class AsyncTransport(httpx2.AsyncBaseTransport):
    """For clients that wait on an event loop."""

    def __init__(self, run: AsyncRun[Any]) -> None:
        self._run = run

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        turn = _turn(self._run, request, content)
        if turn is None:
            response = await self._sent(request, content)
            return _response(_whole(response, await response.aread()))
        pieces = self._respond(request, turn)
        first = await anext(pieces)
        if isinstance(first, Whole):
            return _response(first)
        return httpx2.Response(200, headers=_EVENTS, stream=_AsyncPieces(first, pieces))

    async def _respond(self, request: httpx2.Request, turn: Turn) -> AsyncIterator[bytes | Whole]:
        run, again, answer = self._run, True, Answer()
        while again:
            acts = turn.call(run.unheard())
            try:
                act = next(acts)
                while True:
                    came: Any = None
                    if isinstance(act, Send):
                        reading = turn.reading(act.call)
                        async for piece in self._attempt(request, reading):
                            yield piece
                        came = reading.came
                    elif isinstance(act, Sleep):
                        await asyncio.sleep(max(0, act.until - run.clock()) / 1000)
                    else:
                        came = await run.advise(act, turn.neutral)
                    act = acts.send(came)
            except StopIteration as over:
                answer = over.value
            finally:
                acts.close()
            again = answer.outcome is None and turn.again(await run.judged(answer, turn))
        yield run.ended(turn, answer)

    async def _attempt(self, request: httpx2.Request, reading: Reading) -> AsyncIterator[bytes]:
        deadline = reading.call.deadline
        try:
            response = await self._in_time(deadline, self._open(request, reading))
            try:
                if not reading.begins(response.status_code, response.headers.get("content-type", "")):
                    reading.whole(_whole(response, await self._in_time(deadline, response.aread())))
                    return
                chunks = response.aiter_bytes()
                while not reading.over:
                    chunk = await self._in_time(deadline, anext(chunks, None))
                    if chunk is None:
                        break
                    if out := reading.feed(chunk):
                        yield out
            finally:
                await response.aclose()
        except Exception as exc:
            reading.broke(exc)
        else:
            reading.fed()

    async def _in_time(self, deadline: int, waited: Awaitable[T]) -> T:
        if deadline >= NO_TIME:
            return await waited
        async with asyncio.timeout(max(0, deadline - self._run.clock()) / 1000):
            return await waited

    async def _open(self, request: httpx2.Request, reading: Reading) -> Any:
        other = self._run.other(reading.call.client)
        if other is None:
            return await self._sent(request, encode(reading.body))
        options = await other._prepare_options(self._run.face.options(self._run.face.path, reading.body))
        made = other._build_request(options)
        await other._prepare_request(made)
        return await other._client.send(made, stream=True)

    async def _sent(self, request: httpx2.Request, content: bytes) -> Any:
        inner = self._run.inner
        made = _made(inner, request, content, request.extensions)
        return await inner.send(made, stream=True)


class _Pieces(httpx2.SyncByteStream):
    def __init__(self, first: bytes, rest: Iterator[Any]) -> None:
        self._first, self._rest = first, rest

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        for piece in self._rest:
            yield piece.content if isinstance(piece, Whole) else piece

    def close(self) -> None:
        self._rest.close()  # type: ignore[attr-defined]


class _AsyncPieces(httpx2.AsyncByteStream):
    def __init__(self, first: bytes, rest: AsyncIterator[Any]) -> None:
        self._first, self._rest = first, rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._first
        async for piece in self._rest:
            yield piece.content if isinstance(piece, Whole) else piece

    async def aclose(self) -> None:
        await self._rest.aclose()  # type: ignore[attr-defined]


def _turn(run: Base[Any], request: httpx2.Request, content: bytes) -> Turn | None:
    """What to do about a request; ``None``: it passes through."""
    path = request.url.path.rstrip("/")
    face = run.face
    if request.method != "POST":
        return None
    if not path.endswith(face.path):
        for refused in face.refused:
            if path.endswith(refused) or f"{refused}/" in path:
                raise RunError(f"`{refused}` is not governed, and so refused: use `{face.path}`")
        return None
    if request.headers.get("x-stainless-retry-count", "0") != "0":
        _log.warning(
            "run %s: the SDK has sent a request again; leave its `max_retries` at 0: the policy says how often",
            run.id,
        )
    return run.turn(decode(content))


def _response(whole: Whole) -> httpx2.Response:
    headers = {key: value for key, value in whole.headers.items() if key.lower() not in _UNPACKED}
    if whole.status >= 400:
        headers["x-should-retry"] = "false"  # the SDKs obey it, whatever they are set to
    return httpx2.Response(whole.status, headers=headers, content=whole.content)


def _whole(response: Any, content: bytes) -> Whole:
    return Whole(response.status_code, dict(response.headers.items()), content)


def _made(inner: Any, request: httpx2.Request, content: bytes, extensions: Any) -> Any:
    """The request for the SDK's own HTTP client, which may be of the library before this one."""
    if isinstance(inner, httpx2.Client | httpx2.AsyncClient):
        headers = _headers(request)
        return httpx2.Request(request.method, request.url, headers=headers, content=content, extensions=extensions)
    return inner.build_request(
        request.method, str(request.url), headers=_headers(request), content=content, extensions=extensions
    )


def _headers(request: httpx2.Request) -> list[tuple[str, str]]:
    return [(key, value) for key, value in request.headers.multi_items() if key.lower() not in _OURS]


def _in_time(request: httpx2.Request, deadline: int, now: int) -> dict[str, Any]:
    """The request's timeouts, none longer than the policy leaves."""
    if deadline >= NO_TIME:
        return dict(request.extensions)
    left = max(0.001, (deadline - now) / 1000)
    timeouts = request.extensions.get("timeout") or dict.fromkeys(("connect", "read", "write", "pool"))
    cut = {key: left if value is None else min(value, left) for key, value in timeouts.items()}
    return {**request.extensions, "timeout": cut}
