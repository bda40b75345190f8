"""The rehearsal server itself: its ledger, its other addresses, its threads, bad HTTP, and the command."""

import argparse
import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from engine.clients import ModelError, from_spec
from engine.core.messages import Message, Request, ToolSpec
from engine.rehearsal import Ledger, Rehearsal, RehearsalError, Script, ScriptError
from engine.rehearsal.ledger import MOST_BYTES, Entry
from policy_lang.cli import rehearse

ASK = Request((Message("user", "question"),), (ToolSpec("search"),))
ALWAYS = Script.of({"text": "x", "times": "always"})


def http(url: str, body: bytes | None = None, method: str | None = None, **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def complete(server: Rehearsal, spec: str = "openai:gpt-x", request: Request = ASK):
    async def steps():
        client = from_spec(spec, base_url=server.url)
        try:
            return await client.complete(request, timeout=10)
        finally:
            await client.aclose()

    return asyncio.run(steps())


class TestLedger:
    def test_it_shows_everything_in_python_and_over_http_the_same(self):
        with Rehearsal(ALWAYS) as server:
            complete(server)
            complete(server, "anthropic:claude-x")
            status, body = http(f"{server.url}/ledger")
            shown = json.loads(body)

        first, second = server.ledger
        assert status == 200
        assert shown["total"] == server.ledger.total == 2
        assert shown["requests"][0]["body"] == first.body
        assert shown["usage"]["output"] == server.ledger.usage.output == 2
        assert (first.wire, first.model, first.status, first.reply, first.answered) == (
            "openai",
            "gpt-x",
            200,
            1,
            "answers",
        )
        assert (first.offered, first.stream, first.problem) == (("search",), False, None)
        assert (second.wire, second.path) == ("anthropic", "/v1/messages")
        assert abs(first.at_ms - time.time() * 1000) < 60_000

    def test_secrets_are_never_in_it(self):
        secret = dict.fromkeys(("authorization", "x-api-key", "cookie", "proxy-authorization"), "s3cret")
        with Rehearsal(ALWAYS) as server:
            http(f"{server.url}/v1/chat/completions", b"{}", **secret)
            shown = http(f"{server.url}/ledger")[1]

        assert b"s3cret" not in shown
        assert all(server.ledger[0].headers[name] == "***" for name in secret)

    def test_reset_begins_again(self):
        with Rehearsal(Script.of({"text": "first"}, {"text": "second"})) as server:
            complete(server)
            assert http(f"{server.url}/reset", b"")[0] == 200

            assert server.ledger.total == len(server.ledger) == 0
            assert complete(server).message.text == "first"

    def test_what_it_holds_is_bounded_and_its_total_goes_on(self):
        ledger = Ledger()
        for number in range(12):
            ledger.add(Entry(number=number, at_ms=0, wire="openai", path="/", headers={}, body=None), MOST_BYTES // 10)

        assert [entry.number for entry in ledger] == list(range(2, 12))
        assert ledger.total == 12

    def test_each_entry_is_told_when_it_is_answered(self):
        told: list[Entry] = []
        with Rehearsal(ALWAYS, on_entry=told.append) as server:
            complete(server)

        assert [(entry.number, entry.status) for entry in told] == [(1, 200)]


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "shape"), [("/v1/chat/completions", ("error", "type")), ("/v1/messages", ("error", "type"))]
    )
    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\x00", b"[" * 100_000, b"{}"])
    def test_a_bad_body_is_refused_in_the_providers_shape_and_uses_no_reply(self, path, shape, body):
        with Rehearsal(ALWAYS) as server:
            status, answer = http(server.url + path, body)

        assert status == 400
        assert json.loads(answer)[shape[0]][shape[1]] == "invalid_request_error"
        assert server.ledger[0].reply is None
        assert server.ledger.problems == [json.loads(answer)["error"]["message"]]

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/", 200),
            ("GET", "/v1/messages", 405),
            ("GET", "/nothing", 404),
            ("POST", "/ledger", 405),
            ("GET", "/reset", 405),
        ],
    )
    def test_other_addresses(self, method, path, status):
        with Rehearsal(ALWAYS) as server:
            assert http(server.url + path, method=method)[0] == status
            assert server.ledger.total == 0

    @pytest.mark.parametrize(
        ("sent", "status"),
        [
            (b"nonsense\r\n\r\n", b"400"),
            (b"POST /v1/messages HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"400"),
            (b"POST /v1/messages HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
            (b"POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
            (b"POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", b"413"),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n", b"431"),
            (b"GET / HTTP/1.1\r\n", b""),
            (b"POST /v1/messages HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf", b""),
        ],
    )
    def test_bad_http_is_answered_or_ignored_and_the_server_lives_on(self, sent, status):
        with Rehearsal(ALWAYS) as server:
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
                try:
                    answer = b"".join(iter(lambda: sock.recv(65536), b""))
                except ConnectionResetError:  # closed with our bytes unread
                    answer = b""
            assert answer[9:12] in (status, b"") if status == b"431" else answer[9:12] == status

            assert complete(server).message.text == "x"

    def test_a_body_in_chunks_is_read(self):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "q"}]}'
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:20], body[20:])) + b"0\r\n\r\n"
        head = b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        with Rehearsal(ALWAYS) as server, socket.create_connection(("127.0.0.1", server.port), timeout=10) as sock:
            sock.sendall(head + chunks)
            answer = b"".join(iter(lambda: sock.recv(65536), b""))

        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert server.ledger[0].model == "m"


class TestRunning:
    def test_it_stops_and_frees_its_port_while_clients_hang(self):
        async def steps():
            async with Rehearsal(Script.of({"broken": "hang"})) as server:
                client = from_spec("openai:m", base_url=server.url)
                task = asyncio.create_task(client.complete(ASK))
                while not server.ledger.total:
                    await asyncio.sleep(0.01)
                port = server.port
            with pytest.raises(ModelError) as caught:
                await task
            await client.aclose()
            assert caught.value.reason == "network"
            async with Rehearsal(ALWAYS, port=port) as again:
                assert again.port == port

        asyncio.run(asyncio.wait_for(steps(), 20))

    def test_a_port_that_is_taken_is_said(self):
        with Rehearsal(ALWAYS) as server:
            second = Rehearsal(ALWAYS, port=server.port)
            with pytest.raises(RehearsalError, match=f"cannot listen on port {server.port}: .*; choose another"):
                second.__enter__()

    def test_threads_end_with_the_block(self):
        before = threading.active_count()
        with Rehearsal(ALWAYS):
            assert threading.active_count() == before + 1

        assert threading.active_count() == before

    def test_an_address_only_while_it_runs(self):
        server = Rehearsal(ALWAYS)

        with pytest.raises(RehearsalError, match="is not running"):
            _ = server.url

    def test_a_script_file(self, tmp_path):
        (tmp_path / "s.toml").write_text('[[reply]]\ntext = "from a file"\n')
        with Rehearsal(tmp_path / "s.toml") as server:
            assert complete(server).message.text == "from a file"
        with pytest.raises(ScriptError, match="cannot be read"):
            Rehearsal(tmp_path / "none.toml")


def command(*args: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "policy_lang.cli", "rehearse", *args]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class TestCommand:
    def test_it_prints_the_address_a_line_for_each_request_and_ends_with_ctrl_c(self, tmp_path):
        script = tmp_path / "s.toml"
        script.write_text('[[reply]]\ntool = "search"\n\n[[reply]]\ntext = "x"\nusage = { input = 7, output = 2 }\n')
        process = command(str(script))
        try:
            lines = [process.stdout.readline() for _ in range(4)]
            url = re.search(r"http://127\.0\.0\.1:\d+", lines[0])
            assert url is not None
            assert lines[0] == f"rehearsing {script} on {url[0]}\n"
            assert f"--base-url {url[0]}/v1" in lines[1]

            async def ask():
                client = from_spec("openai:gpt-x", base_url=f"{url[0]}/v1")
                await client.complete(ASK, timeout=10)
                await client.complete(Request(ASK.messages, stream=True), timeout=10)
                with pytest.raises(ModelError):
                    await client.complete(Request((Message("tool", "r", tool_call_id="c"),)), timeout=10)
                await client.aclose()

            asyncio.run(ask())
            told = [re.sub(r"^\d\d:\d\d:\d\d|\d+ ms$", "", process.stdout.readline().strip()) for _ in range(3)]
            process.send_signal(signal.SIGINT)

            assert process.wait(10) == 0
            assert told == [
                " #1  openai gpt-x  1 message, 1 tool  -> reply 1: asks search  (11 in, 2 out)  ",
                " #2  openai gpt-x stream  1 message, no tools  -> reply 2: answers  (7 in, 2 out)  ",
                " #3  openai gpt-x  1 message, no tools  -> 400 Invalid parameter: messages with role 'tool' must be a "
                "response to a preceding message with 'tool_calls'.  ",
            ]
            assert process.stderr.read() == ""
        finally:
            process.kill()
            process.communicate()

    @pytest.mark.parametrize(
        ("script", "args", "code", "message"),
        [
            (None, (), 2, "s.toml: cannot be read: No such file or directory"),
            ("[[reply]]\ntxt = 1", (), 2, "s.toml:1: reply 1: unknown key `txt`; did you mean `text`?"),
            ("[[reply]]\ntext = 'x'", ("--port", "99999"), 2, "`99999` is no port; give a number from 0 to 65535"),
        ],
    )
    def test_a_mistake_gives_one_message_and_code_2(self, tmp_path, script, args, code, message):
        if script is not None:
            (tmp_path / "s.toml").write_text(script)
        out, err = (process := command(str(tmp_path / "s.toml"), *args)).communicate(timeout=30)

        assert process.returncode == code
        assert out == ""
        assert err.splitlines()[-1].endswith(message)
        assert "Traceback" not in err

    def test_a_line_never_contains_what_a_terminal_would_obey(self):
        entry = Entry(number=1, at_ms=0, wire="openai", path="/", headers={}, body={}, model="\x1b[2Jevil\n")

        assert rehearse.describe(entry).isprintable()

    def test_its_arguments(self):
        parser = argparse.ArgumentParser()
        rehearse.add_arguments(parser)

        assert vars(parser.parse_args(["s.toml", "--port", "8711"])) == {
            "script": "s.toml",
            "port": 8711,
            "quiet": False,
        }
