"""One attempt at an upstream: its request, its answer in full or piece by piece, and why it failed.

Knows HTTP and headers, no policy. Keys go where the client that sent them means them to go, and nowhere else.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from msgspec import Struct

from engine.clients.address import is_loopback
from engine.clients.attempt import failure_from
from engine.clients.base import ModelError
from engine.clients.classify import asked_to_wait_ms
from engine.clients.errors import ErrorInfo, excerpt, read_error
from engine.clients.wire import decode
from engine.gateway.settings import Bounds, Route
from engine.gateway.transcripts import OWN_HEADERS
from engine.gateway.wires import Json, Wire

_HOP: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "expect"),
    )
)
"""Headers that belong to one connection."""
_KEYS: Final = ("authorization", "x-api-key", "api-key", "cookie")
_ERROR_BYTES: Final = 256 * 1024


class Said(Struct, frozen=True):
    """A response that was read to its end."""

    status: int
    headers: dict[str, str]
    raw: bytes


class Upstream:
    """Where requests go. ``base``: the URL that stands in place of the gateway's own."""

    def __init__(self, base: str, bounds: Bounds) -> None:
        self._base, self._bounds = base, bounds
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=self._bounds.upstream_seconds)
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60)
        self._http = aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=2**18,
            skip_auto_headers=("user-agent", "accept", "content-type"),
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    def url(self, path: str) -> str:
        """A path of ours at the upstream, whose base URL may or may not end in the version."""
        if self._base.endswith("/v1") and (path == "/v1" or path.startswith(("/v1/", "/v1?"))):
            path = path[3:]
        return f"{self._base}{path}"

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], data: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Raises ``ModelError`` for what the network does."""
        assert self._http is not None
        try:
            async with self._http.request(
                method, url, headers=headers, data=data, allow_redirects=False, proxy=_proxy(_origin(url))
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError) as exc:
            raise _broken(exc) from None

    def headers(self, given: Mapping[str, str], wire: Wire | None, route: Route | None) -> dict[str, str]:
        """What of a client's headers goes on; at another server its keys do not."""
        named = {word.strip().lower() for word in given.get("connection", "").split(",")}
        away = _HOP | named | set(OWN_HEADERS) | {"accept-encoding", "content-encoding"}
        if route is not None and route.url:
            away |= set(_KEYS)
        made = {name: value for name, value in given.items() if name.lower() not in away}
        made["accept-encoding"] = "identity"
        if route is not None and route.key and wire is not None:
            header, value = wire.key_header(route.key)
            made[header] = value
        return made

    async def read(self, response: aiohttp.ClientResponse) -> Said:
        """A whole response. Raises ``ModelError`` where it is too large, or breaks off."""
        most = self._bounds.reply_bytes if 200 <= response.status <= 299 else _ERROR_BYTES
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise ModelError("provider", f"the reply is larger than {most:,} bytes; reading stopped")
        return Said(response.status, passed_on(response.headers), b"".join(pieces))


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


@functools.cache
def _proxy(origin: str) -> str | None:
    """The proxy that the environment names for a server. Read here: aiohttp would read a file with passwords, too, at
    every request."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """What of an upstream's headers a client gets: the body is not packed any more."""
    away = _HOP | {"content-encoding", "set-cookie"}
    return {name: value for name, value in headers.items() if name.lower() not in away}


def refused(said: Said) -> ModelError:
    """The failure that an upstream tells of by its status."""
    try:
        info = read_error(decode(said.raw))
    except ValueError:
        info = None
    headers = {name.lower(): value for name, value in said.headers.items()}
    wait = asked_to_wait_ms(headers, time.time())
    return failure_from(info or ErrorInfo((), excerpt(said.raw)), said.status, wait)


def reply_in(said: Said, wire: Wire) -> tuple[Json, Any]:
    """The body and the reply in it. Raises ``ModelError`` for what is none."""
    try:
        body = decode(said.raw)
    except ValueError as exc:
        raise ModelError("provider", f"the reply is not JSON ({exc}): {excerpt(said.raw)}", status=200) from None
    error = read_error(body) if not isinstance(body, dict) or body.get("error") else None
    if error is not None:
        raise failure_from(error, 200)
    if not isinstance(body, dict):
        raise ModelError("provider", "the reply is not a JSON object", status=200)
    return body, wire.parse(body)


def _broken(exc: BaseException) -> ModelError:
    if isinstance(exc, asyncio.TimeoutError | TimeoutError):
        return ModelError("timeout", "the upstream did not answer in time")
    if isinstance(exc, aiohttp.ClientConnectorError):
        return ModelError("network", "the upstream cannot be reached")
    if isinstance(exc, aiohttp.InvalidURL):
        return ModelError("host", "the upstream's URL cannot be used")
    return ModelError("network", f"the connection to the upstream broke: {type(exc).__name__}")
