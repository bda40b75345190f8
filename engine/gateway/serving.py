"""The gateway as a server: what comes in, what of it is governed, and within which bounds. See the package."""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import re
from types import TracebackType
from typing import Any, Final

from aiohttp import web

from engine.adapters.following import Client
from engine.adapters.governor import Governor
from engine.clients.base import ModelError
from engine.clients.wire import decode, encode
from engine.core.host import HOSTS
from engine.core.policy import Policy
from engine.core.step import Compiled
from engine.core.vocabulary import RESOURCES
from engine.gateway.anthropic_wire import AnthropicWire
from engine.gateway.governed import Governed, Left
from engine.gateway.keys import Keys, key_of
from engine.gateway.openai_wire import OpenAIWire
from engine.gateway.runs import Denied, Runs, spent_by_key
from engine.gateway.settings import MAIN, Bounds, GatewayError, Refuse, Route, checked, checked_url
from engine.gateway.transcripts import Asked
from engine.gateway.upstream import Upstream, passed_on
from engine.gateway.wires import Wire
from engine.run.decision_log import DecisionLog, Sink
from engine.run.effects import ProtocolError
from engine.run.listeners import Observer
from engine.run.threads import counts_threads
from engine.store.protocol import JournalError, Store

_log = logging.getLogger("policy.gateway")
_AMOUNTS: Final = ("tokens", "input_tokens", "output_tokens", "cost")
_UNGOVERNED: Final = ("/responses", "/completions", "/complete", "/batches")
"""Ends of paths at which models are called in a format that is not governed."""
_RUNS: Final = "/policy/runs/"
_GRACE: Final = 10.0
"""Seconds that requests in hand have when the gateway is stopped."""


class Gateway:
    """See the package. Use it with ``async with``.

    ``upstream`` is the base URL of the provider. ``clients`` are those that the policy may switch to. ``key_policy``
    limits what all runs of a key use together. ``refuse``: a run that ends without an answer is told as a reply of the
    model (``message``) or as an error. ``tool_failure`` is a pattern found in results of failed tools, where the format
    does not say. ``strict``: paths that are not governed are refused.

    Raises:
        GatewayError: the policy needs a journal, or something is set up wrongly.
        RunError: the policy names a client that is not there.
    """

    def __init__(
        self,
        policy: Policy | Compiled,
        upstream: str,
        *,
        clients: tuple[Route, ...] = (),
        key_policy: Policy | None = None,
        journal: Store | None = None,
        log: DecisionLog | str | os.PathLike[str] | Sink | None = None,
        telemetry: Observer | None = None,
        refuse: Refuse = "message",
        tool_failure: str | None = None,
        strict: bool = False,
        bounds: Bounds | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.refuse, self._strict = refuse, strict
        self.routes = checked(clients)
        self._host, self._port = host, port
        base = checked_url(upstream)
        names = [Client(MAIN), *(Client(r.name, r.model, r.wire) for r in clients)]
        profile = HOSTS["gateway"] if tool_failure is None else (*HOSTS["gateway"], "ends")
        self.governor = Governor(
            policy, "gateway", clients=names, journal=journal, log=log, telemetry=telemetry, profile=profile
        )
        plan = self.governor.policy
        _needs_journal(plan, key_policy, journal)
        self.unkept = (*self.governor.unkept, *_unkept(plan))
        limits = (*plan.limits, *(key_policy.limits if key_policy is not None else ()))
        self.sizes = any(limit.resource in _AMOUNTS and limit.max is not None for limit in limits)
        self.upstream = Upstream(base, self.bounds)
        keys = Keys(key_policy, spent_by_key(journal)) if key_policy is not None and journal is not None else None
        self.runs = Runs(
            self.governor, self.routes, journal, keys, self.bounds, _pattern(tool_failure), counts_threads(plan)
        )
        of_openai = any(name in base for name in ("api.openai.com", ".openai.azure.com"))
        self._openai = OpenAIWire("max_completion_tokens" if of_openai else "max_tokens")
        self._anthropic = AnthropicWire()
        self._in_hand = 0
        self._warned: set[str] = set()
        self._runner: web.AppRunner | None = None

    # Life.

    async def start(self) -> None:
        """Raises ``GatewayError`` if the port cannot be had."""
        app = web.Application(client_max_size=self.bounds.request_bytes)
        app.router.add_route("*", "/{path:.*}", self._handle)
        await self.upstream.open()
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=_GRACE)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, backlog=1024).start()
        except OSError as exc:
            await self.stop()
            why = exc.strerror or str(exc)
            raise GatewayError(f"cannot listen on {self._host}:{self._port}: {why}; choose another port") from None
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Requests in hand are waited for, for a while. Harmless when called twice."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            await self.upstream.close()
            self.governor.close()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    # Requests.

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = posixpath.normpath(re.sub("/+", "/", request.path))
        wire = self._wire_at(path) if request.method == "POST" else None
        if self._in_hand >= self.bounds.requests:
            return self._error(wire, 503, "busy", "the gateway has as many requests in hand as it may have")
        self._in_hand += 1
        try:
            if wire is not None:
                return await self._govern(request, wire)
            if path.startswith(_RUNS):
                return self._status(request, path.removeprefix(_RUNS))
            return await self._pass_through(request, path)
        except Left:
            return web.Response(status=499)
        except ProtocolError as exc:  # a mistake of ours: told, and no more of it
            _log.error("%s", exc)
            return self._error(wire, 500, "gateway", "the gateway cannot go on with this run")
        finally:
            self._in_hand -= 1

    def _wire_at(self, path: str) -> Wire | None:
        if path.endswith("/chat/completions"):
            return self._openai
        return self._anthropic if path == "/messages" or path.endswith("/v1/messages") else None

    async def _govern(self, request: web.Request, wire: Wire) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            async with asyncio.timeout(self.bounds.request_seconds):
                raw = await request.read()
        except web.HTTPRequestEntityTooLarge:
            most = self.bounds.request_bytes
            return self._error(wire, 413, "request_too_large", f"the request is larger than {most:,} bytes")
        except TimeoutError:
            return self._error(wire, 408, "request_timeout", "the request took too long to arrive")
        try:
            body = decode(raw)
            if not isinstance(body, dict):
                raise ValueError("a request is a JSON object")
            asked = Asked(wire, body, key_of(headers), headers)
        except ValueError as exc:
            return self._error(wire, 400, "invalid_request", f"the request cannot be governed: {exc}")
        try:
            run = self.runs.of(asked)
            async with run.lock:
                return await Governed(self, request, asked, run, raw).answer()
        except Denied:
            return self._error(wire, 403, "run_of_another", "the run that is named belongs to another key")
        except JournalError as exc:
            _log.error("the journal cannot be used: %s", exc)
            return self._error(wire, 503, "journal", "the gateway cannot write its journal")

    def _error(self, wire: Wire | None, status: int, kind: str, message: str) -> web.Response:
        body = (wire or self._openai).error(status, kind, message)
        headers = {"x-should-retry": "true" if status in (408, 503) else "false"}
        return web.Response(status=status, body=encode(body), content_type="application/json", headers=headers)

    def _status(self, request: web.Request, id: str) -> web.Response:
        """How a run stands, for the key that has begun it."""
        run = self.runs.get(id, key_of({name.lower(): value for name, value in request.headers.items()}))
        if run is None:
            return self._error(None, 404, "unknown_run", "there is no such run of this key")
        session = run.session
        told: dict[str, Any] = {"run": id, "thread": session.thread, "used": session.used, "outcome": session.outcome}
        return web.Response(body=encode(told), content_type="application/json")

    async def _pass_through(self, request: web.Request, path: str) -> web.StreamResponse:
        """What is not governed goes to the upstream and back as it is."""
        ungoverned = request.method == "POST" and path.endswith(_UNGOVERNED)
        if self._strict:
            return self._error(
                None, 404, "not_governed", f"{path} is not governed, and this gateway passes nothing else"
            )
        if ungoverned and path not in self._warned and len(self._warned) < len(_UNGOVERNED):
            self._warned.add(path)
            _log.warning("%s calls models and is not governed: it goes through as it is", path)
        headers = self.upstream.headers(request.headers, None, None)
        data = request.content if request.body_exists else None
        response: web.StreamResponse | None = None
        try:
            url = self.upstream.url(request.path_qs)
            async with self.upstream.send(request.method, url, headers, data) as came:
                response = web.StreamResponse(status=came.status, reason=came.reason, headers=passed_on(came.headers))
                if request.method == "HEAD" or came.status in (204, 304):
                    return response
                await response.prepare(request)
                async for piece in came.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except ModelError as exc:
            if response is not None and response.prepared:
                raise Left from exc
            return self._error(None, 504 if exc.reason == "timeout" else 502, exc.reason, exc.message)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as exc:
        raise GatewayError(f"`{text}` is no pattern: {exc}") from None


def _needs_journal(policy: Policy, keys: Policy | None, journal: Store | None) -> None:
    if journal is not None:
        return
    limit = next((each for each in policy.limits if each.scope == "thread" and each.max is not None), None)
    if limit is not None:
        raise GatewayError(
            f"the limit on {limit.resource} per thread needs a journal: without one it ends with the process"
        )
    if keys is not None:
        raise GatewayError("budgets of keys need a journal: without one they end with the process")


def _unkept(policy: Policy) -> tuple[str, ...]:
    """What a gateway cannot keep beside what its abilities say."""
    found = []
    if names := (*policy.resolvers(), *policy.consultants()):
        found.append(f"nobody answers for `{names[0]}`: a gateway has no functions, the next step applies")
    if any(limit.resource == "wall" and limit.max is not None for limit in policy.limits):
        found.append(f"`{RESOURCES['wall'].name}` is noticed when the client's next request comes")
    for sentence in found:
        _log.warning("policy `%s` at the gateway: %s", policy.name, sentence)
    return tuple(found)
