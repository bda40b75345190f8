"""One request on the wire, from its first byte to its reply or failure: what has arrived, and what ends it.

Knows of the client only what an attempt needs: how a reply is parsed, how much may come, and its key to be blacked out.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import httpx

from engine.clients import classify
from engine.clients.base import ModelError, OnDelta, Partial
from engine.clients.errors import ErrorInfo, excerpt, read_error, transport_failure
from engine.clients.sse import EventParser
from engine.clients.wire import Assembler, decode
from engine.core.messages import Reply

if TYPE_CHECKING:
    from engine.clients.http_client import HttpClient

_END_WITHIN: Final = 0.1
"""Seconds that the end of a response may come after its last event."""


class Attempt:
    """The state of one attempt: what has arrived so far, for the error that may end it."""

    def __init__(self, client: HttpClient, on_delta: OnDelta | None) -> None:
        self._client = client
        self._on_delta = on_delta
        self._assembler: Assembler | None = None
        self._delivered = False

    async def run(self, http: httpx.AsyncClient, request: httpx.Request) -> Reply:
        try:
            response = await http.send(request, stream=True)
        except Exception as exc:
            raise ModelError(*transport_failure(exc)) from None
        try:
            return await self._read(response)
        finally:
            await _close(response)

    async def _read(self, response: httpx.Response) -> Reply:
        client = self._client
        request_id = response.headers.get(client.request_id_header, "")
        if not 200 <= response.status_code <= 299:
            raise await self._refused(response)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return await self._read_stream(response, request_id)
        body = await _read_body(response, client.bounds.response_bytes)
        if body is None:
            raise _too_large("reply", client.bounds.response_bytes)
        try:
            value = decode(body)
        except ValueError as exc:
            raise ModelError("provider", f"the reply is not JSON ({exc}): {excerpt(body)}", status=200) from None
        error = read_error(value) if not isinstance(value, dict) or value.get("error") else None
        if error is not None:
            raise failure_from(error, 200)
        if not isinstance(value, dict):
            raise ModelError("provider", "the reply is not a JSON object", status=200)
        reply = client.parse(value, request_id)
        await self._deliver(reply.message.text)
        return reply

    async def _read_stream(self, response: httpx.Response, request_id: str) -> Reply:
        assembler = self._assembler = self._client.assembler()
        parser = EventParser()
        bounds = self._client.bounds
        left = bounds.stream_bytes
        chunks = response.aiter_bytes()
        while not assembler.ended:
            try:
                chunk = await anext(chunks, b"")
            except Exception as exc:
                if assembler.complete:  # the answer is whole; only the end mark or the usage is lost
                    break
                raise ModelError(*transport_failure(exc)) from None
            if not chunk:
                break
            left -= len(chunk)
            if left < 0:
                raise _too_large("stream", bounds.stream_bytes)
            for event in parser.feed(chunk):
                await self._deliver(assembler.feed(event))
                if assembler.ended:
                    break
            if parser.unfinished > bounds.response_bytes:
                raise _too_large("event of the stream", bounds.response_bytes)
        await _read_out(chunks)
        if not assembler.complete:
            raise ModelError("network", "the stream ended before the answer was complete")
        return assembler.reply(request_id)

    async def _deliver(self, text: str) -> None:
        if not text or self._on_delta is None:
            return
        self._delivered = True
        try:
            waiting = self._on_delta(text)
            if inspect.isawaitable(waiting):
                await waiting
        except Exception as exc:
            raise ModelError("host", f"the listener of the answer failed: {type(exc).__name__}: {exc}") from exc

    async def _refused(self, response: httpx.Response) -> ModelError:
        body = await _read_body(response, self._client.bounds.error_bytes, cut=True) or b""
        try:
            info = read_error(decode(body))
        except ValueError:
            info = None
        headers = response.headers
        if response.has_redirect_location:  # not followed: the key is meant for the server that was named
            info = ErrorInfo((), f"the server redirects to {headers['location'][:200]}; is the base URL right?")
        wait = classify.asked_to_wait_ms(headers, time.time())
        return failure_from(info or ErrorInfo((), excerpt(body)), response.status_code, wait)

    def failed(self, error: ModelError) -> ModelError:
        """The same error with the client's name, and with what had arrived."""
        assembler = self._assembler
        partial: Partial = "none"
        if self._delivered:
            partial = "delivered"
        elif assembler is not None and assembler.started:
            partial = "held"
        return ModelError(
            error.reason,
            self._client.redacted(f"{self._client.name}: {error.message}"),
            code=error.code,
            status=error.status,
            retry_after_ms=error.retry_after_ms,
            partial=partial,
            text=assembler.text if assembler else "",
            usage=assembler.usage if assembler else None,
        )


def failure_from(info: ErrorInfo, status: int | None, retry_after_ms: int | None = None) -> ModelError:
    """The error for what a provider said. A status of 200 says nothing: then the body's own counts."""
    said = info.status if status is None or status == 200 else status
    code = info.codes[0] if info.codes else None
    about = " ".join(part for part in (f"HTTP {said}" if said else "", f"({code})" if code else "") if part)
    return ModelError(
        classify.classify(said, info.codes, info.message),
        f"{about}: {info.message}" if about else info.message,
        code=code,
        status=status if status is not None else said,
        retry_after_ms=info.retry_after_ms if retry_after_ms is None else retry_after_ms,
    )


async def _read_body(response: httpx.Response, most: int, *, cut: bool = False) -> bytes | None:
    """The body; of a larger one its beginning (``cut``) or ``None``. A broken connection is a ``ModelError``."""
    pieces: list[bytes] = []
    left = most
    try:
        async for chunk in response.aiter_bytes():
            pieces.append(chunk)
            left -= len(chunk)
            if left < 0:
                return b"".join(pieces)[:most] if cut else None
    except Exception as exc:
        if not cut:
            raise ModelError(*transport_failure(exc)) from None
    return b"".join(pieces)


async def _read_out(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a response behind the last event, which is on its way: only a response that was
    read to its end gives its connection back. A server that goes on is not waited for."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_END_WITHIN):
            while await anext(chunks, b""):
                pass


async def _close(response: httpx.Response) -> None:
    try:
        await response.aclose()
    except Exception:
        return  # the connection is gone already, and the outcome of the attempt is known


def _too_large(what: str, most: int) -> ModelError:
    return ModelError("provider", f"the {what} is larger than {most:,} bytes; reading stopped")
