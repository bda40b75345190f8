"""HTTP/1.1 on loopback, as little of it as a scripted server needs, on asyncio streams.

Own code, because a rehearsal must also answer wrongly: cut a body, stall, reset the connection.
Libraries exist to make that impossible. Knows nothing of models.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

MOST_HEADER_BYTES: Final = 64 * 1024
MOST_BODY_BYTES: Final = 64 * 1024 * 1024
HOST: Final = "127.0.0.1"
_LOOK_EVERY: Final = 0.02
"""Seconds between two looks whether a waiting client has left."""


class HTTPRequest(NamedTuple):
    """One request, read whole."""

    """One request, read whole."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class BadHTTP(Exception):
    """What came in is no request we read; ``status`` says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Exchange:
    """The answer to one request, sent in steps. After ``close`` or ``reset`` nothing more is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.closed = False

    async def send(self, status: int, headers: Mapping[str, str], body: bytes, *, only: int | None = None) -> None:
        """A whole response; of its body only the first ``only`` bytes if given, whatever its length says."""
        head = _head(status, {**headers, "content-length": str(len(body))})
        await self._write(head + (body if only is None else body[:only]))

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self._write(_head(status, {**headers, "transfer-encoding": "chunked"}))

    async def chunk(self, data: bytes) -> None:
        if data:
            await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    def close(self) -> None:
        self.closed = True
        self._writer.close()

    def reset(self) -> None:
        """Close so that the other side sees `connection reset`."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed = True
        self._writer.transport.abort()

    async def wait(self, seconds: float | None) -> None:
        """Wait so long (``None``: for ever). Raises ``ConnectionError`` when the client has left meanwhile."""
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        while until is None or loop.time() < until:
            left = _LOOK_EVERY if until is None else min(_LOOK_EVERY, until - loop.time())
            await asyncio.sleep(max(0.0, left))
            if self._reader.at_eof() or self._reader.exception() is not None:
                raise ConnectionResetError("the client has left")

    async def _write(self, data: bytes) -> None:
        if self._reader.at_eof():
            raise ConnectionResetError("the client has left")
        self._writer.write(data)
        await self._writer.drain()


Handler = Callable[[HTTPRequest, Exchange], Awaitable[None]]


class HTTPServer:
    """Listens on one port of loopback and hands every request to ``handler``, one connection a task."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        """Port 0 takes a free one. Raises ``OSError`` if the port cannot be had."""
        self._server = await asyncio.start_server(self._connected, HOST, port, limit=MOST_HEADER_BYTES, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the server stops: both end the connection, neither is a fault
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(Exception):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            exchange = Exchange(reader, writer)
            try:
                request = await _read(reader, writer)
            except BadHTTP as exc:
                await exchange.send(
                    exc.status, {"content-type": "text/plain", "connection": "close"}, f"{exc}\n".encode()
                )
                return
            if request is None:
                return
            await self._handler(request, exchange)
            if exchange.closed or request.headers.get("connection", "").lower() == "close":
                return


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HTTPRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadHTTP(431, "the headers are too large") from None
    lines = head.decode("latin-1").split("\r\n")
    first = lines[0].split(" ")
    if len(first) != 3 or not first[2].startswith("HTTP/1."):
        raise BadHTTP(400, "not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        body = await _body(reader, headers)
    except asyncio.IncompleteReadError:
        return None
    return HTTPRequest(first[0].upper(), first[1].partition("?")[0], headers, body)


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return await _chunked(reader)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise BadHTTP(400, "the content-length is no number")
    if len(length) > 12 or int(length) > MOST_BODY_BYTES:
        raise BadHTTP(413, f"the body is larger than {MOST_BODY_BYTES:,} bytes")
    return await reader.readexactly(int(length))


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    left = MOST_BODY_BYTES
    while True:
        try:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0].strip(), 16)
        except (ValueError, asyncio.LimitOverrunError):
            raise BadHTTP(400, "a chunk has no size") from None
        left -= size
        if size < 0 or left < 0:
            raise BadHTTP(413, f"the body is larger than {MOST_BODY_BYTES:,} bytes")
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return b"".join(pieces)
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Scripted"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode("latin-1")
