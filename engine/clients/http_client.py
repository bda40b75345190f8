"""A client over HTTP, for any wire format: connections, key, headers, and the deadline of an attempt.

The formats themselves (bodies, replies, events) are the subclasses'. Never retries, never logs,
never shows a key: not in ``repr``, not in an error's text.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

import httpx

from engine.clients.address import checked_base_url, is_loopback
from engine.clients.attempt import Attempt
from engine.clients.base import Bounds, ClientConfigError, ModelError, OnDelta
from engine.clients.pools import SIZE, Pools
from engine.clients.wire import Assembler, encode
from engine.core.messages import Reply, Request

_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9:._-]+")
"""An idempotency key that needs no quoting."""

FROM_DEFAULT: Final = "<default>"
"""Marks an ``api_key_env`` nobody passed: then a loopback server is sent no key."""


class HttpClient:
    """What both clients share. Makes its connections at the first call, other ones for each event loop.

    ``base_url`` is given as each provider's own documentation writes it. ``api_key_env`` names the
    environment variable with the key; ``None`` sends none. ``max_output`` is used where a request
    names none. ``read_timeout`` (seconds) is the longest silence, not the longest answer; the
    deadline of an attempt is an argument of ``complete``. ``transport`` replaces the network.
    """

    wire: str
    default_base_url: ClassVar[str]
    default_key_env: ClassVar[str]
    path: ClassVar[str]
    request_id_header: ClassVar[str]
    default_output: ClassVar[int]
    """The largest output (tokens) to ask for where one must be named and nobody has."""
    reserved_settings: ClassVar[frozenset[str]]
    """Keys of a body that only the engine sets."""

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        base_url: str | None = None,
        api_key_env: str | None = FROM_DEFAULT,
        max_output: int | None = None,
        connect_timeout: float = 10.0,
        read_timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
        bounds: Bounds | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not model:
            raise ClientConfigError("a client needs the name of a model")
        self.model = model
        self.name = name or model
        self.base_url = checked_base_url(base_url or self.default_base_url)
        self.max_output = max_output
        self.bounds = bounds or Bounds()
        self._loopback = is_loopback(self.base_url.host)
        self._key = self._read_key(api_key_env)
        self._url = self._endpoint()
        self._headers = self._all_headers(headers or {})
        self._timeout = httpx.Timeout(read_timeout, connect=connect_timeout, write=60.0, pool=60.0)
        self._transport = transport
        self._pools: Pools | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.model!r}, name={self.name!r}, base_url={str(self.base_url)!r})"

    @property
    def usual_output(self) -> int:
        """The largest output (tokens) of a request that must name one: what a large budget leaves is no number to
        send, since providers refuse a request for more than their model can write."""
        return self.max_output or self.default_output

    # What a wire format says.

    def body(self, request: Request) -> dict[str, Any]:
        """The request as this provider's JSON, before ``settings`` are merged in."""
        raise NotImplementedError

    def parse(self, body: dict[str, Any], request_id: str) -> Reply:
        """A whole reply. Raises ``ModelError`` if it makes no sense."""
        raise NotImplementedError

    def assembler(self) -> Assembler:
        """What puts one streamed reply together: a new one for each attempt."""
        raise NotImplementedError

    def key_header(self, key: str) -> tuple[str, str]:
        """Name and value of the header that carries the key."""
        raise NotImplementedError

    def fixed_headers(self) -> Mapping[str, str]:
        """Headers of every request, besides the key's."""
        return {}

    def _endpoint(self) -> httpx.URL:
        return httpx.URL(f"{str(self.base_url).rstrip('/')}{self.path_below(self.base_url.path)}")

    def path_below(self, base_path: str) -> str:
        """Where requests go, seen from the base URL."""
        return self.path

    # One attempt.

    async def complete(
        self,
        request: Request,
        *,
        on_delta: OnDelta | None = None,
        timeout: float | None = None,
        idempotency_key: str | None = None,
    ) -> Reply:
        """Send ``request`` once. See ``engine.clients.base.Client``."""
        attempt = Attempt(self, on_delta)
        try:
            sent = self._http_request(request, idempotency_key)
            if timeout is None:
                return await self._send(attempt, sent)
            async with asyncio.timeout(timeout):
                return await self._send(attempt, sent)
        except ModelError as exc:
            raise attempt.failed(exc) from exc.__cause__
        except TimeoutError:
            raise attempt.failed(ModelError("timeout", f"no complete answer within {timeout or 0:g} s")) from None

    async def _send(self, attempt: Attempt, sent: httpx.Request) -> Reply:
        pools = self._connections()
        pool = pools.take()
        try:
            return await attempt.run(pool.http, sent)
        finally:
            await pools.give(pool)

    def _http_request(self, request: Request, idempotency_key: str | None) -> httpx.Request:
        if not request.messages:
            raise ModelError("host", "the request has no messages")
        refused = sorted(self.reserved_settings & request.settings.keys())
        if refused:
            keys = ", ".join(f"`{key}`" for key in refused)
            raise ModelError("host", f"the settings of a request may not contain {keys}: the engine decides these")
        body = self.body(request)
        for key, value in request.settings.items():
            if key != "parallel_tool_calls" or "tools" in body:
                body[key] = value
        try:
            content = encode(body)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ModelError("host", f"the request is not JSON: {exc}") from None
        headers = [*self._headers, (b"accept", b"text/event-stream" if request.stream else b"application/json")]
        if idempotency_key:
            plain = _PLAIN_KEY.fullmatch(idempotency_key)
            key = idempotency_key if plain else quote(idempotency_key, safe=":._-")
            headers.append((b"idempotency-key", key.encode()))
        return httpx.Request(
            "POST", self._url, headers=headers, content=content, extensions={"timeout": self._timeout.as_dict()}
        )

    def _connections(self) -> Pools:
        loop = asyncio.get_running_loop()
        if self._pools is None or (self._loop is not loop and self._transport is None):
            # Pooled connections belong to the loop they were opened in; a second asyncio.run gets new ones.
            self._pools = Pools(self._make_http, one=self._transport is not None)
            self._loop = loop
        return self._pools

    def _make_http(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=SIZE)
        if self._transport is not None:
            return httpx.AsyncClient(transport=self._transport, timeout=self._timeout)
        # A plain-text loopback server needs no certificates (loading them takes longer than the call) and no proxy.
        secure = not (self._loopback and self.base_url.scheme == "http")
        verify = _certificates() if secure else False
        return httpx.AsyncClient(limits=limits, timeout=self._timeout, verify=verify, trust_env=secure)

    async def aclose(self) -> None:
        """Close the connections; harmless when called twice. The next request opens new ones."""
        pools, self._pools = self._pools, None
        if pools is not None and self._loop is asyncio.get_running_loop():
            await pools.aclose()

    # Keys and headers.

    def _read_key(self, env: str | None) -> str | None:
        if env is None or (env == FROM_DEFAULT and self._loopback):
            return None
        variable = self.default_key_env if env == FROM_DEFAULT else env
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ClientConfigError(
                f"no key for {self.base_url}: set the environment variable {variable} "
                "(a server on this machine, given as base_url, needs none)"
            )
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise ClientConfigError(f"{variable} holds characters that no key has (its value is not shown)")
        return key

    def _all_headers(self, extra: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        merged = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "policy-lang"}
        merged |= self.fixed_headers()
        if self._key is not None:
            header, value = self.key_header(self._key)
            merged[header] = value
        merged |= {name.lower(): value for name, value in extra.items()}
        for name, value in merged.items():
            if not (_HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()):
                raise ClientConfigError(f"header {name!r}: name and value must be plain ASCII on one line")
        return [(name.encode(), value.encode()) for name, value in merged.items()]

    def redacted(self, text: str) -> str:
        """The text without the key."""
        # A provider may repeat a key it refuses. One of a few letters is a placeholder, found in any word.
        return text.replace(self._key, "***") if self._key and len(self._key) >= 8 else text


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Loaded once for all clients and event loops: it takes longer than many a call."""
    return httpx.create_ssl_context()
