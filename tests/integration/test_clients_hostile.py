"""Both clients against servers that misbehave on purpose: bounded in time and memory, one clear error each.

The servers here are raw sockets: they send what no library, and no script, would.
"""

import asyncio
import contextlib
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from engine.clients import Bounds, ModelError, from_spec
from engine.core.messages import Message, Request
from engine.rehearsal import Rehearsal, Script

SPECS = ["openai:gpt-x", "anthropic:claude-x"]
BOTH = pytest.mark.parametrize("spec", SPECS)
ASK = Request((Message("user", "question"),))
STREAM = Request((Message("user", "question"),), stream=True)
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """A server that reads a request and then lets ``answer`` write what it likes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
            await answer(writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def raw(data: bytes) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return answer


def response(body: bytes, kind: str = "application/json", extra: str = "") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def endless(piece: bytes, kind: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
        while True:
            writer.write(piece)
            await writer.drain()

    return answer


def failure(spec: str, answer: Answer, request: Request = ASK, *, timeout: float = 20, **options) -> ModelError:
    async def steps() -> ModelError:
        async with serving(answer) as url:
            client = from_spec(spec, base_url=url, **options)
            try:
                with pytest.raises(ModelError) as caught:
                    await client.complete(request, timeout=timeout)
                return caught.value
            finally:
                await client.aclose()

    return asyncio.run(asyncio.wait_for(steps(), 60))


@BOTH
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "network"),
        (b"\x00\x01\x02\x03\r\n\r\n", "network"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "network"),
        (b"HTTP/1.1 200 OK\r\n", "network"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "network"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{", "network"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{", "network"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "network"),
        (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "unknown"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "provider"),
        (b"HTTP/1.1 307 Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "unknown"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf", "provider"),
        (b"HTTP/1.1 429 Slow\r\nRetry-After: \xff\xfe\r\nContent-Length: 0\r\n\r\n", "rate_limit"),
        (response(b""), "provider"),
        (response(b"null"), "provider"),
        (response(b"[]"), "provider"),
        (response(b"[" * 1_000_000), "provider"),
        (response(b'{"a":' * 1_000_000), "provider"),
        (response(b"\xff\xfe{}"), "provider"),
        (response(b'{"choices": [{"message": {"content": "x"}}], "content": "x"'), "provider"),
        (response(b'{"error": {"message": "no", "code": "rate_limit_exceeded"}}'), "rate_limit"),
        (response(b'{"error": {"message": "no", "code": 429}}'), "rate_limit"),
        (response(b'{"error": "model runner crashed"}'), "unknown"),
        (response(b"not gzip", extra="Content-Encoding: gzip\r\n"), "provider"),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, bytes) else value,
)
def test_an_answer_that_is_none(spec, data, reason):
    error = failure(spec, raw(data))

    assert error.reason == reason
    assert error.message.startswith(spec.split(":")[1] + ": ")
    assert "\n" not in error.message
    assert "Traceback" not in error.message


@BOTH
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"data: {\n\n",
        b"data: [1]\n\n",
        b"data: \xff\n\n",
        b"event: error\ndata: {}\n\n",
        b": only comments\n\n",
        b"\n" * 1000,
    ],
)
def test_a_stream_that_is_none(spec, data):
    error = failure(spec, raw(response(data, "text/event-stream")), STREAM)

    assert error.reason in ("provider", "network", "unknown")
    assert error.partial == "none"


BOUNDS = Bounds(response_bytes=1_000_000, stream_bytes=2_000_000, tool_calls=50)
PING = b'event: ping\ndata: {"type": "ping"}\n\n'


class TestBounds:
    @BOTH
    @pytest.mark.parametrize(
        ("piece", "kind", "message"),
        [
            (b" " * 65536, "application/json", "the reply is larger than 1,000,000 bytes; reading stopped"),
            (
                b": keep-alive\n\n" * 1000,
                "text/event-stream",
                "the stream is larger than 2,000,000 bytes; reading stopped",
            ),
            (
                b"x" * 65536,
                "text/event-stream",
                "the event of the stream is larger than 1,000,000 bytes; reading stopped",
            ),
            (
                b"data: x\n" * 8000,
                "text/event-stream",
                "the event of the stream is larger than 1,000,000 bytes; reading stopped",
            ),
            (PING * 1000, "text/event-stream", "the stream is larger than 2,000,000 bytes; reading stopped"),
        ],
        ids=["spaces", "comments", "one line", "one event", "pings"],
    )
    def test_an_answer_without_an_end(self, spec, piece, kind, message):
        error = failure(spec, endless(piece, kind), STREAM, bounds=BOUNDS)

        assert error.reason == "provider"
        assert error.message.endswith(message)

    @BOTH
    def test_an_error_without_an_end_is_read_to_its_bound_only(self, spec):
        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\n\r\n")
            while True:
                writer.write(b"sorry " * 10_000)
                await writer.drain()

        error = failure(spec, answer)

        assert (error.reason, error.status) == ("provider", 500)
        assert len(error.message) < 600

    @BOTH
    def test_a_body_that_unpacks_to_very_much(self, spec):
        bomb = gzip.compress(b" " * 50_000_000)
        error = failure(spec, raw(response(bomb, extra="Content-Encoding: gzip\r\n")), bounds=BOUNDS)

        assert error.message.endswith("the reply is larger than 1,000,000 bytes; reading stopped")

    @BOTH
    @pytest.mark.parametrize("request_", [ASK, STREAM], ids=["plain", "stream"])
    def test_a_million_tool_calls(self, spec, request_):
        """Neither side may hold them; with the bounds a client has when nothing is said."""

        async def steps() -> tuple[ModelError, int]:
            script = Script.of({"calls": [{"tool": "search", "args": {"q": "x"}, "count": 1_000_000}]})
            async with Rehearsal(script) as server:
                client = from_spec(spec, base_url=server.url)
                tracemalloc.start()
                try:
                    with pytest.raises(ModelError) as caught:
                        await client.complete(request_, timeout=60)
                    return caught.value, tracemalloc.get_traced_memory()[1]
                finally:
                    tracemalloc.stop()
                    await client.aclose()

        error, peak = asyncio.run(asyncio.wait_for(steps(), 100))

        assert error.reason == "provider"
        assert "more than 1,024 tool calls" in error.message or "larger than 8,388,608 bytes" in error.message
        assert peak < 100_000_000

    @BOTH
    def test_a_reply_at_the_bound_is_accepted_and_one_above_is_not(self, spec):
        async def steps() -> None:
            calls = [{"calls": [{"tool": "t", "count": n}]} for n in (50, 51)]
            async with Rehearsal(Script.of(*calls)) as server:
                client = from_spec(spec, base_url=server.url, bounds=BOUNDS)
                assert len((await client.complete(ASK)).message.tool_calls) == 50
                with pytest.raises(ModelError, match="more than 50 tool calls"):
                    await client.complete(ASK)
                await client.aclose()

        asyncio.run(asyncio.wait_for(steps(), 30))


class TestSlowness:
    @BOTH
    def test_a_server_that_sends_a_byte_now_and_then_cannot_hold_an_attempt_beyond_its_deadline(self, spec):
        async def answer(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            while True:
                writer.write(b":")
                await writer.drain()
                await asyncio.sleep(0.02)

        error = failure(spec, answer, STREAM, timeout=0.5)

        assert error.reason == "timeout"

    @BOTH
    def test_events_in_pieces_of_one_byte(self, spec):
        async def steps() -> None:
            async with Rehearsal(Script.of({"text": "ünïcode 😀 text"})) as server:
                client = from_spec(spec, base_url=server.url)
                await client.complete(STREAM)
                await client.aclose()
                whole = await _raw_stream(server, spec)

            async def answer(writer: asyncio.StreamWriter) -> None:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
                for byte in whole:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0)

            async with serving(answer) as url:
                client = from_spec(spec, base_url=url)
                assert (await client.complete(STREAM, timeout=20)).message.text == "ünïcode 😀 text"
                await client.aclose()

        asyncio.run(asyncio.wait_for(steps(), 60))


async def _raw_stream(server: Rehearsal, spec: str) -> bytes:
    """The events the rehearsal server sends, as bytes."""
    from engine.rehearsal import render_anthropic, render_openai
    from engine.rehearsal.plan import make_plan
    from engine.rehearsal.seen import see

    wire = "openai" if spec.startswith("openai") else "anthropic"
    plan = make_plan(1, server.script.replies[0], see(wire, server.ledger[-1].body))
    render = render_openai if wire == "openai" else render_anthropic
    return b"".join(render.events(plan, report_usage=True))


def test_a_server_that_answers_a_stream_request_plainly_and_the_other_way_round():
    plain = json.dumps({"choices": [{"message": {"content": "plain"}}]}).encode()
    events = b'data: {"choices": [{"delta": {"content": "streamed"}, "finish_reason": "stop"}]}\n\n'

    async def ask(answer: bytes, request: Request) -> str:
        async with serving(raw(answer)) as url:
            client = from_spec("openai:m", base_url=url)
            heard: list[str] = []
            reply = await client.complete(request, on_delta=heard.append, timeout=10)
            await client.aclose()
            assert "".join(heard) == reply.message.text
            return reply.message.text

    assert asyncio.run(ask(response(plain), STREAM)) == "plain"
    assert asyncio.run(ask(response(events, "text/event-stream; charset=utf-8"), ASK)) == "streamed"
