"""One governed request, from its transcript to the answer: what the run decides is done here, and nothing else.

A client that leaves ends the attempt, not the run: asked again, it is a further attempt of the same call.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from msgspec import structs
from pydantic import TypeAdapter, ValidationError

from engine.adapters.acts import Answer, Consult, Failed, Replied, Send, Sleep
from engine.adapters.carrying import carried
from engine.adapters.raised import misfit
from engine.adapters.session import stopped
from engine.clients.base import ModelError
from engine.clients.sse import EventParser
from engine.clients.wire import Assembler, encode
from engine.core.decisions import Call
from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.core.outcome import Outcome
from engine.gateway.runs import GatewayRun
from engine.gateway.transcripts import RUN_HEADER, Asked
from engine.gateway.upstream import Said, passed_on, refused, reply_in
from engine.gateway.wires import Json, Rewriter, Round, unoffered
from engine.run import sizes

if TYPE_CHECKING:
    from engine.gateway.serving import Gateway

OUTCOME_HEADER = "x-policy-outcome"
_OBJECT = TypeAdapter(dict[str, Any])
_STATUS = {"incomplete": 429, "cancelled": 409}


class Left(Exception):
    """The client has gone, or takes nothing in any more."""


class Governed:
    """See the module. ``raw`` is the body as it came, ``headers`` the client's."""

    def __init__(self, gateway: Gateway, request: web.Request, asked: Asked, run: GatewayRun, raw: bytes) -> None:
        self._gateway, self._request = gateway, request
        self._asked, self._run = asked, run
        self._wire = asked.wire
        self._raw = raw
        self._headers: Mapping[str, str] = {name.lower(): value for name, value in request.headers.items()}
        self._streams = asked.body.get("stream") is True
        self._rewriter: Rewriter | None = self._wire.rewriter(asked.body) if self._streams else None
        self._response: web.StreamResponse | None = None
        self._said: Said | None = None
        """The last whole response of an upstream."""
        self._body: Json = {}
        """It as JSON, where it is a reply."""
        self._assembler: Assembler | None = None
        self._failure: ModelError | None = None
        self._hidden: list[Json] = []
        """Messages of rounds in this response that the client does not get."""
        self._sent: Json = asked.body
        self._functions: list[ToolCall] = []
        """The calls of the last reply that the client would execute."""
        self._renamed = False
        """Do they have ids of ours?"""
        self._told = False
        """Has the client got a piece of the present attempt?"""

    # The call, and those that follow in the same response.

    async def answer(self) -> web.StreamResponse:
        run, asked = self._run, self._asked
        self._gateway.runs.begun(run, asked)
        run.tools.settle(asked.results)
        messages = self._wire.restored(asked.messages, asked.start, run.rounds)
        wanted = asked.wanted(size=self._gateway.sizes)
        while True:
            self._sent = asked.body if messages is asked.messages else {**asked.body, "messages": messages}
            try:
                answer = await carried(run.session.call(wanted, run.session.open), self._perform)
            except (asyncio.CancelledError, Left):
                self._report()
                raise
            if answer.outcome is not None:
                return await self._ended(answer.outcome, answer)
            assert answer.reply is not None
            said = answer.reply.message
            refused = run.tools.start(said.tool_calls, answer)
            cut = {call.id for call, _ in refused}
            functions = [call for call in said.tool_calls if call.kind == "function"]
            kept = [call for call in functions if call.id not in cut]
            if kept or not functions:
                return await self._deliver(answer.reply, kept, refused)
            added = self._wire.round(said, refused)
            self._hidden += added
            messages = [*messages, *added]

    def _report(self) -> None:
        """What an attempt has used that nobody waits for any more, as far as it is known."""
        assembler = self._assembler
        if assembler is not None and assembler.started:
            usage = assembler.usage or Usage(0, sizes.tokens(len(assembler.text)))
            self._run.session.report(usage)

    async def _perform(self, act: Send | Sleep | Consult) -> Any:
        if isinstance(act, Sleep):
            return await asyncio.sleep(max(0, act.until - self._gateway.governor.clock()) / 1000)
        if isinstance(act, Consult):
            return await self._gateway.governor.advise(self._run.session, act)
        return await self._attempt(act.call)

    # One attempt.

    async def _attempt(self, call: Call) -> Replied | Failed:
        self._said = self._assembler = None
        left = (call.deadline - self._gateway.governor.clock()) / 1000
        try:
            async with asyncio.timeout(min(left, 10**6)):
                reply = await self._on_the_wire(call)
        except TimeoutError:
            return self._failed(ModelError("timeout", "no complete answer before the policy's deadline"))
        except ModelError as exc:
            return self._failed(exc)
        except (aiohttp.ClientError, OSError) as exc:
            return self._failed(ModelError("network", f"the connection to the upstream broke: {type(exc).__name__}"))
        self._failure = None
        reply = self._told_apart(reply)
        calls = self._functions = [c for c in reply.message.tool_calls if c.kind == "function"]
        problems = {c.id: problem for c in calls if (problem := _problem(c.arguments))}
        return Replied(reply, unregistered=unoffered(self._wire.offered(self._asked.body), calls), problems=problems)

    def _told_apart(self, reply: Reply) -> Reply:
        """Some servers give calls no id, or all of them the same: then a call could go by another one's verdict."""
        calls = reply.message.tool_calls
        ids = [call.id for call in calls]
        self._renamed = len({*ids, ""}) <= len(ids)
        if not self._renamed:
            return reply
        made = tuple(structs.replace(call, id=f"call_{uuid.uuid4().hex[:24]}") for call in calls)
        return structs.replace(reply, message=structs.replace(reply.message, tool_calls=made))

    def _failed(self, error: ModelError) -> Failed:
        self._failure = error
        assembler = self._assembler
        text = assembler.text if assembler is not None else ""
        usage = assembler.usage if assembler is not None else None
        if self._told and not text:
            text = " "  # something else of the answer was shown
        return Failed(error.reason, error.message, error.retry_after_ms, text, self._told, usage)

    async def _on_the_wire(self, call: Call) -> Reply:
        gateway, wire = self._gateway, self._wire
        route = gateway.routes.get(call.client)
        body = wire.ruled(self._sent, call, route.model if route is not None else "")
        data = self._raw if body == self._asked.body else encode(body)
        url = wire.path(route.url) if route is not None and route.url else gateway.upstream.url(self._request.path_qs)
        headers = gateway.upstream.headers(self._headers, wire, route)
        headers.setdefault("idempotency-key", f"{self._run.id}:{call.n}")
        self._told = False
        async with gateway.upstream.send("POST", url, headers, data) as response:
            kind = response.headers.get("content-type", "")
            if 200 <= response.status <= 299 and kind.startswith("text/event-stream"):
                if not self._streams:
                    raise ModelError("provider", "the upstream sends a stream that nobody has asked for")
                return await self._stream(response)
            said = await gateway.upstream.read(response)
        self._said = said
        if not 200 <= said.status <= 299:
            raise refused(said)
        self._body, reply = reply_in(said, wire)
        return reply  # type: ignore[no-any-return]

    async def _stream(self, response: aiohttp.ClientResponse) -> Reply:
        assembler = self._assembler = self._wire.assembler()
        parser, most = EventParser(), self._gateway.bounds.reply_bytes
        rewriter = self._rewriter
        assert rewriter is not None
        rewriter.begin()
        try:
            async for piece in response.content.iter_any():
                out: list[bytes] = []
                try:
                    for event in parser.feed(piece):
                        assembler.feed(event)
                        out.append(rewriter.take(event))
                finally:
                    await self._through(b"".join(out), response)
                if assembler.ended:
                    break
                if parser.unfinished > most:
                    raise ModelError("provider", f"an event of the stream is larger than {most:,} bytes")
        except (aiohttp.ClientError, OSError):
            if not assembler.complete:
                raise
        if not assembler.complete:
            raise ModelError("network", "the stream ended before the answer was complete")
        return assembler.reply("")

    async def _through(self, data: bytes, response: aiohttp.ClientResponse | None = None) -> None:
        """Bytes of a streamed answer, to the client."""
        if not data:
            return
        assert self._rewriter is not None
        self._told = self._told or self._rewriter.shown
        if self._response is None:
            headers = passed_on(response.headers) if response is not None else {"content-type": "text/event-stream"}
            self._response = web.StreamResponse(headers={**headers, RUN_HEADER: self._run.id})
            await self._written(self._response.prepare(self._request))
        await self._written(self._response.write(data))

    async def _written(self, writing: Awaitable[Any]) -> None:
        try:
            async with asyncio.timeout(self._gateway.bounds.request_seconds):
                await writing
        except (OSError, TimeoutError) as exc:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise Left from exc

    # What the client gets.

    async def _deliver(
        self, reply: Reply, kept: list[ToolCall], refused: list[tuple[ToolCall, str]]
    ) -> web.StreamResponse:
        """An answer of a run that goes on, or has been answered."""
        message = reply.message
        round = None
        if kept and (refused or self._hidden):
            ids = tuple(call.id for call in kept)
            round = Round(ids, tuple(self._hidden), self._wire.reply(message), tuple(refused))
        self._gateway.runs.delivered(self._run, self._asked, message, kept, round)
        if self._rewriter is not None and (self._assembler is not None or self._response is not None):
            if self._assembler is not None:
                whole = not refused and not self._renamed
                return await self._end(self._rewriter.finish(reply, kept, whole=whole))
            if kept:
                return await self._error(502, "provider", "the upstream was asked for a stream, and sent none")
            return await self._end(self._rewriter.close(message.text))
        body = self._wire.cut(self._body, self._functions, kept) if refused or self._renamed else None
        return self._plain(200, self._said_headers(), encode(body) if body is not None else None)

    async def _ended(self, outcome: Outcome, answer: Answer) -> web.StreamResponse:
        if answer.reply is not None or outcome.reason == "empty_answer":
            reply = answer.reply or self._empty()
            said = structs.replace(reply.message, tool_calls=_hosted(reply.message))
            return await self._deliver(structs.replace(reply, message=said), [], _cut(reply.message))
        self._gateway.runs.delivered(self._run, self._asked, Message("assistant"), [], None)
        if outcome.reason == "llm_failure" and self._failure is not None:
            return await self._failed_for_good(outcome, self._failure)
        told = self._rewriter is not None and self._rewriter.shown
        if self._gateway.refuse == "message":
            text = stopped(structs.replace(outcome, partial=False)) if told else self._run.session.shown
            return await self._say(text)
        status = _STATUS.get(outcome.status, 502)
        return await self._error(status, outcome.reason or outcome.status, _why(outcome))

    def _empty(self) -> Reply:
        if self._assembler is not None:
            return self._assembler.reply("")
        return self._wire.parse(self._body)

    async def _say(self, text: str) -> web.StreamResponse:
        if self._rewriter is not None:
            return await self._end(self._rewriter.close(text))
        body = self._wire.answer(text, self._asked.model)
        return self._plain(200, {"content-type": "application/json"}, encode(body))

    async def _failed_for_good(self, outcome: Outcome, failure: ModelError) -> web.StreamResponse:
        """What the provider has said goes through as it is; for what the network did there is a status of ours."""
        said = self._said
        if said is not None and not 200 <= said.status <= 299 and self._response is None:
            return self._plain(said.status, said.headers, None)
        status = 504 if failure.reason == "timeout" else 502
        return await self._error(status, outcome.error or "llm_failure", failure.message)

    async def _error(self, status: int, kind: str, message: str) -> web.StreamResponse:
        body = self._wire.error(status, kind, message)
        if self._response is not None:
            assert self._rewriter is not None
            return await self._end(self._rewriter.error(body))
        return self._plain(status, {"content-type": "application/json"}, encode(body))

    async def _end(self, data: bytes) -> web.StreamResponse:
        """The end of a stream; how the run has ended stands in a comment, which readers of events pass over."""
        outcome = self._run.session.outcome
        comment = f": policy {_outcome_words(outcome)}\n\n".encode() if outcome is not None else b""
        await self._through(comment + data)
        assert self._response is not None
        await self._written(self._response.write_eof())
        return self._response

    def _said_headers(self) -> dict[str, str]:
        return self._said.headers if self._said is not None else {"content-type": "application/json"}

    def _plain(self, status: int, headers: Mapping[str, str], body: bytes | None) -> web.Response:
        if body is None:
            body = self._said.raw if self._said is not None else b""
        made = {**headers, RUN_HEADER: self._run.id}
        outcome = self._run.session.outcome
        if outcome is not None:
            made[OUTCOME_HEADER] = _outcome_words(outcome)
        if status >= 400:
            made["x-should-retry"] = "false"  # SDKs would try again; whether that is done is the policy's business
        return web.Response(status=status, headers=made, body=body)


def _problem(arguments: str) -> str:
    """Why arguments are none, in words; empty if they are. Whether they fit the tool is the client's to say."""
    try:
        _OBJECT.validate_json("{}" if arguments.strip() in ("", "null") else arguments)
    except ValidationError as exc:
        return misfit(exc)
    return ""


def _hosted(message: Message) -> tuple[ToolCall, ...]:
    return tuple(call for call in message.tool_calls if call.kind != "function")


def _cut(message: Message) -> list[tuple[ToolCall, str]]:
    return [(call, "") for call in message.tool_calls if call.kind == "function"]


def _outcome_words(outcome: Outcome) -> str:
    return " ".join(filter(None, (outcome.status, outcome.reason)))


def _why(outcome: Outcome) -> str:
    return stopped(structs.replace(outcome, partial=False)).removeprefix("[Stopped: ").removesuffix("]")
