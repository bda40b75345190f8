"""A gateway among strangers: raw HTTP, slow and vanishing clients, many at once, and whatever it does not know."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
from typing import Any

import httpx
import pytest
from aiohttp import web
from gateway_parts import QUESTION, TOOLS, governed, limits, policy
from openai import AsyncOpenAI

from engine.gateway import Bounds, Gateway, GatewayError, Route
from engine.rehearsal import Rehearsal, Script

SAYS = {"text": "It is 42.", "times": "always"}
BODY = {"model": "m", "messages": [QUESTION], "tools": TOOLS}


def went(coroutine: Any) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


async def post(gateway: Gateway, body: Any = BODY, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as http:
        content = body if isinstance(body, bytes) else json.dumps(body)
        return await http.post(f"{gateway.url}{path}", content=content, **more)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("stream", [False, True])
def test_curl_gets_what_the_provider_would_say(stream: bool):
    async def main():
        async with governed("", SAYS) as (gateway, _):
            body = json.dumps({"model": "m", "messages": [QUESTION], "stream": stream})
            url = f"{gateway.url}/v1/chat/completions"
            command = ["curl", "-sSi", "--noproxy", "*", "-H", "content-type: application/json", "-d", body, url]
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
            assert done.stdout.startswith("HTTP/1.1 200")
            assert "42." in done.stdout
            assert ("data: [DONE]" in done.stdout) == stream
            assert "x-policy-run" in done.stdout.lower()

    went(main())


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "cannot be governed"),
        (b"[1]", "a request is a JSON object"),
        ({"model": "m"}, "`messages` must be a list"),
        ({"model": "m", "messages": ["hello"]}, "`messages` must be a list"),
        ({**BODY, "n": 2}, "`n` above 1"),
        ({**BODY, "functions": [{"name": "a"}]}, "`functions` is the old form"),
    ],
)
def test_what_cannot_be_governed_does_not_go_through(body: Any, why: str):
    async def main():
        async with governed("", SAYS) as (gateway, server):
            reply = await post(gateway, body)
            assert reply.status_code == 400
            assert why in reply.json()["error"]["message"]
            assert len(server.ledger) == 0

    went(main())


@pytest.mark.parametrize("path", ["//v1//chat/completions", "/v1/x/../chat/completions", "/v1/chat%2Fcompletions/"])
def test_a_path_in_another_spelling_is_governed_too(path: str):
    async def main():
        async with governed(limits("llm_calls  0"), SAYS) as (gateway, server):
            async with asyncio.timeout(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
                body = json.dumps(BODY).encode()
                head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                writer.write(head.encode() + body)
                answer = await reader.read()
                writer.close()
            assert b"llm_calls" in answer
            assert len(server.ledger) == 0

    went(main())


async def echo(request: web.Request) -> web.Response:
    told = {"method": request.method, "path": request.path_qs, "headers": dict(request.headers)}
    return web.json_response(told | {"body": (await request.read()).decode()}, status=207, headers={"x-one": "1"})


def test_paths_that_it_does_not_know_go_through_as_they_are(caplog: pytest.LogCaptureFixture):
    async def main():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Gateway(policy(), url) as gateway, httpx.AsyncClient() as http:
            came = await http.get(f"{gateway.url}/v1/models?a=%20b", headers={"authorization": "Bearer sk", "x-b": "c"})
            assert came.status_code == 207
            assert came.headers["x-one"] == "1"
            told = came.json()
            assert (told["method"], told["path"]) == ("GET", "/v1/models?a=%20b")
            headers = {name.lower(): value for name, value in told["headers"].items()}
            assert (headers["authorization"], headers["x-b"]) == ("Bearer sk", "c")
            assert (await http.post(f"{gateway.url}/v1/files", content=b"abc")).json()["body"] == "abc"
            with caplog.at_level(logging.WARNING):
                await http.post(f"{gateway.url}/v1/responses", json={})
            assert "/v1/responses calls models and is not governed" in caplog.text
        async with Gateway(policy(), f"{url}/v1", strict=True) as gateway, httpx.AsyncClient() as http:
            assert (await http.get(f"{gateway.url}/v1/models")).status_code == 404
        async with Gateway(policy(), f"{url}/v1") as gateway, httpx.AsyncClient() as http:
            assert (await http.get(f"{gateway.url}/v1/models")).json()["path"] == "/v1/models"
        await runner.cleanup()

    went(main())


def test_a_client_at_another_server_is_not_sent_the_keys_of_this_one(monkeypatch: pytest.MonkeyPatch):
    async def main():
        seen: list[dict[str, str]] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append({name.lower(): value for name, value in request.headers.items()})
            message = {"role": "assistant", "content": "From the other one."}
            return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        other = Route("cheap", "openai", "small", f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "OTHER_KEY")
        rules = "on llm_failure *  fallback cheap\n"
        fails = {"fail": "provider", "times": "always"}
        async with governed(rules, fails, clients=(other,)) as (gateway, _):
            reply = await post(gateway, headers={"authorization": "Bearer sk-mine", "cookie": "a=b"})
            assert reply.json()["choices"][0]["message"]["content"] == "From the other one."
        await runner.cleanup()
        assert seen[0]["authorization"] == "Bearer sk-theirs"
        assert "cookie" not in seen[0]

    monkeypatch.setenv("OTHER_KEY", "sk-theirs")
    went(main())


def test_limits_on_size_number_and_time_of_requests():
    async def main():
        bounds = Bounds(request_bytes=10_000, requests=2, request_seconds=0.3)
        slow = {"text": "Slow.", "delay_ms": 1_000, "times": "always"}
        async with governed("", slow, bounds=bounds) as (gateway, server):
            large = {**BODY, "messages": [{"role": "user", "content": "x" * 20_000}]}
            assert (await post(gateway, large)).status_code == 413
            answers = await asyncio.gather(*(post(gateway) for _ in range(4)))
            assert sorted(reply.status_code for reply in answers) == [200, 200, 503, 503]
            assert len(server.ledger) == 2
            reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            assert b"408" in await asyncio.wait_for(reader.readline(), 20)
            writer.close()

    went(main())


def test_a_client_that_reads_nothing_is_left_and_its_upstream_with_it():
    async def main():
        endless = {"text": "word " * 400_000, "piece": 2_000}
        bounds = Bounds(request_seconds=0.5)
        async with governed("", endless, SAYS, bounds=bounds) as (gateway, server):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]), limit=1024)
            body = json.dumps({**BODY, "stream": True}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await reader.readline()
            async with asyncio.timeout(30):
                while not (len(server.ledger) and server.ledger[0].duration_ms):
                    await asyncio.sleep(0.05)
            writer.close()
            assert (await post(gateway)).status_code == 200  # others are served as before

    went(main())


def test_a_client_that_leaves_in_the_midst_of_a_stream_ends_the_attempt_not_the_run():
    async def main():
        slow = {"text": "one two three four", "piece": 4, "event_delay_ms": 100}
        async with governed(limits("llm_calls  1"), slow, SAYS) as (gateway, server):
            client = AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)
            named = {"x-policy-run": "one"}
            asked: dict[str, Any] = {"model": "m", "messages": [QUESTION], "extra_headers": named}
            stream = await client.chat.completions.create(stream=True, **asked)
            async for _ in stream:
                break
            await stream.close()
            reply = await client.chat.completions.create(**asked)
            assert reply.choices[0].message.content == "It is 42."
            async with asyncio.timeout(20):
                while not server.ledger[0].client_left:
                    await asyncio.sleep(0.02)

    went(main())


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_many_at_once_each_gets_its_own(stream: bool):
    async def main():
        answer = {"text": "one two three four five six", "piece": 4, "event_delay_ms": 5, "times": "always"}
        async with governed(limits("llm_calls  1"), answer) as (gateway, server):
            limits_ = httpx.Limits(max_connections=None)
            http = httpx.AsyncClient(limits=limits_, timeout=60)
            async with AsyncOpenAI(
                base_url=f"{gateway.url}/v1", api_key="k", max_retries=0, http_client=http
            ) as client:

                async def one(n: int) -> str:
                    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": f"Q{n}"}]}
                    if not stream:
                        return (await client.chat.completions.create(**asked)).choices[0].message.content or ""
                    chunks = await client.chat.completions.create(stream=True, **asked)
                    return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])

                said = await asyncio.gather(*(one(n) for n in range(200)))
            assert set(said) == {"one two three four five six"}
            assert len(server.ledger) == 200

    went(main())


def test_requests_in_hand_are_answered_when_the_gateway_stops():
    async def main():
        slow = {"text": "Done.", "delay_ms": 300}
        async with Rehearsal(Script.of(slow)) as server:
            gateway = Gateway(policy(), server.url)
            await gateway.start()
            asking = asyncio.ensure_future(post(gateway))
            while len(server.ledger) < 1:
                await asyncio.sleep(0.01)
            await gateway.stop()
            assert (await asking).json()["choices"][0]["message"]["content"] == "Done."

    went(main())


def test_an_upstream_that_is_not_there_is_told_in_the_providers_shape():
    async def main():
        async with Gateway(policy(), "http://127.0.0.1:9") as gateway:
            reply = await post(gateway)
            assert reply.status_code == 502
            assert reply.json()["error"]["code"] == "network"
            claude = await post(gateway, {**BODY, "tools": [], "max_tokens": 9}, "/v1/messages")
            assert claude.json()["type"] == "error"
            assert (await post(gateway, b"", "/v1/files")).status_code == 502

    went(main())


def test_what_is_set_up_wrongly_is_told():
    for upstream in ("nowhere", "ftp://x", "http://user:pass@x", "http://x?a=b"):
        with pytest.raises(GatewayError):
            Gateway(policy(), upstream)
    with pytest.raises(GatewayError, match="is no pattern"):
        Gateway(policy(), "http://x", tool_failure="(")
    with pytest.raises(GatewayError, match="two clients"):
        Gateway(policy(), "http://x", clients=(Route("a", "openai", "m"),) * 2)

    async def main():
        async with Gateway(policy(), "http://x") as gateway:
            port = int(gateway.url.rpartition(":")[2])
            with pytest.raises(GatewayError, match="choose another port"):
                await Gateway(policy(), "http://x", port=port).start()

    went(main())


def test_names_of_runs_are_names():
    async def main():
        async with governed("", SAYS) as (gateway, _):
            reply = await post(gateway, headers={"x-policy-run": "x" * 300})
            assert reply.status_code == 400

    went(main())
