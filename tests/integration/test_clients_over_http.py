"""Both clients against the rehearsal server, over real HTTP: every kind of answer and every failure."""

import asyncio
import time
from email.utils import formatdate

import httpx
import httpx_aiohttp
import pytest

from engine.clients import ModelError, from_spec
from engine.core.messages import Message, Request, ToolCall, ToolSpec, Usage
from engine.rehearsal import Rehearsal, Script

SPECS = ["openai:gpt-x", "anthropic:claude-x"]
SEARCH = ToolSpec("search", "Find pages.")
ASK = Request((Message("system", "Be brief."), Message("user", "question")), (SEARCH,))

BOTH = pytest.mark.parametrize("spec", SPECS)
WAYS = pytest.mark.parametrize(
    ("spec", "stream", "transport"),
    [(spec, stream, kind) for spec in SPECS for stream in (False, True) for kind in ("httpx", "aiohttp")],
)


def request(stream: bool = False, **changes) -> Request:
    fields = {"messages": ASK.messages, "tools": ASK.tools, "stream": stream} | changes
    return Request(**fields)


class Talk:
    """A server and a client for it, and what the client's listener was told."""

    def __init__(self, spec: str, *replies: dict, transport: str = "httpx", **options):
        self.server = Rehearsal(Script.of(*replies))
        self.spec, self.transport, self.options = spec, transport, options
        self.heard: list[str] = []

    async def __aenter__(self):
        await self.server.start()
        own = httpx_aiohttp.AiohttpTransport() if self.transport == "aiohttp" else None
        self.client = from_spec(self.spec, base_url=self.server.url, transport=own, **self.options)
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()
        await self.server.stop()

    async def ask(self, stream: bool = False, *, timeout: float | None = 20, listen: bool = True, **changes):
        listener = self.heard.append if listen else None
        return await self.client.complete(request(stream, **changes), on_delta=listener, timeout=timeout)

    async def fail(self, stream: bool = False, **options) -> ModelError:
        with pytest.raises(ModelError) as caught:
            await self.ask(stream, **options)
        return caught.value


def within(seconds: float, steps):
    async def bounded():
        return await asyncio.wait_for(steps, seconds)

    return asyncio.run(bounded())


class TestAnswers:
    @WAYS
    def test_a_text(self, spec, stream, transport):
        async def steps():
            reply = {
                "text": "The answer, with ünïcode 😀.",
                "usage": {"input": 100, "output": 20, "cached": 60, "cache_write": 8},
            }
            async with Talk(spec, reply, transport=transport) as s:
                answer = await s.ask(stream)

                assert answer.message.text == "".join(s.heard) == "The answer, with ünïcode 😀."
                assert len(s.heard) > 1 if stream else len(s.heard) == 1
                assert answer.finish == "stop"
                assert answer.usage == Usage(100, 20, 60, 8)
                assert answer.model == spec.split(":")[1]
                assert answer.request_id == "req_1"
                assert s.server.ledger.usage == answer.usage

        within(20, steps())

    @WAYS
    def test_parallel_tool_calls_and_then_an_answer(self, spec, stream, transport):
        async def steps():
            calls = [{"tool": "search", "args": {"q": "a"}}, {"tool": "search", "args": {"q": ["b", {"c": None}]}}]
            async with Talk(spec, {"text": "I look.", "calls": calls}, {"text": "Found."}, transport=transport) as s:
                asked = await s.ask(stream)
                assert asked.finish == "tool_calls"
                assert [(c.id, c.name, c.arguments) for c in asked.message.tool_calls] == [
                    ("call_1_1", "search", '{"q":"a"}'),
                    ("call_1_2", "search", '{"q":["b",{"c":null}]}'),
                ]
                results = [
                    Message("tool", "r", tool_call_id=c.id, is_error=c.id.endswith("2"))
                    for c in asked.message.tool_calls
                ]
                answer = await s.ask(stream, messages=(*ASK.messages, asked.message, *results))

                assert answer.message.text == "Found."
                assert s.server.ledger.problems == []
                assert [e.reply for e in s.server.ledger] == [1, 2]

        within(20, steps())

    @WAYS
    def test_ids_that_are_missing_repeated_or_odd_are_left_as_they_are(self, spec, stream, transport):
        async def steps():
            calls = [{"tool": "t", "id": "same", "count": 2}, {"tool": "t", "id": ""}, {"tool": "t", "id": "a b.c"}]
            async with Talk(spec, {"calls": calls}, transport=transport) as s:
                answer = await s.ask(stream)

                assert [c.id for c in answer.message.tool_calls] == ["same", "same", "", "a b.c"]

        within(20, steps())

    @BOTH
    def test_arguments_that_are_no_json_arrive_as_they_are(self, spec):
        async def steps():
            async with Talk(spec, {"tool": "t", "args": '{"q": '}) as s:
                assert (await s.ask(True)).message.tool_calls[0].arguments == '{"q": '

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize(
        ("reply", "finish", "text"),
        [
            ({"text": "half an ans", "finish": "length"}, "length", "half an ans"),
            ({"finish": "length"}, "length", ""),
            ({"fail": "truncated"}, "length", ""),
            ({"finish": "content_filter"}, "content_filter", ""),
            ({"text": "No.", "finish": "refusal"}, "content_filter", "No."),
            ({"text": ""}, "stop", ""),
        ],
    )
    def test_how_an_answer_finished(self, spec, stream, reply, finish, text):
        async def steps():
            async with Talk(spec, reply) as s:
                answer = await s.ask(stream)

                assert (answer.finish, answer.message.text) == (finish, text)

        within(20, steps())

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_paused_turn_goes_on_when_its_message_is_sent_again(self, stream):
        async def steps():
            hosted = {"tool": "web_search", "args": {"q": "x"}, "hosted": True}
            pause = {"text": "Searching.", "calls": [hosted], "finish": "pause"}
            async with Talk("anthropic:c", pause, {"text": "Done."}) as s:
                paused = await s.ask(stream)
                assert paused.finish == "pause"
                assert paused.message.tool_calls == (ToolCall("call_1_1", "web_search", '{"q":"x"}', "hosted"),)
                answer = await s.ask(stream, messages=(*ASK.messages, paused.message))

                assert answer.message.text == "Done."
                assert s.server.ledger.problems == []
                kinds = [block["type"] for block in s.server.ledger[-1].body["messages"][-1]["content"]]
                assert kinds == ["text", "server_tool_use", "web_search_tool_result"]

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize("stream", [False, True])
    def test_usage_that_is_not_reported_is_none(self, spec, stream):
        async def steps():
            async with Talk(spec, {"text": "x", "usage": "none"}) as s:
                assert (await s.ask(stream)).usage is None

        within(20, steps())

    @BOTH
    def test_usage_reported_with_every_event_counts_once(self, spec):
        async def steps():
            async with Talk(spec, {"text": "x" * 99, "usage": {"input": 9, "output": 7, "cumulative": True}}) as s:
                assert (await s.ask(True)).usage == Usage(9, 7)

        within(20, steps())

    def test_reasoning_tokens_are_part_of_the_output(self):
        async def steps():
            async with Talk("openai:m", {"text": "x", "usage": {"output": 50, "reasoning": 40}}) as s:
                usage = (await s.ask(True)).usage

                assert usage is not None
                assert (usage.output, usage.reasoning) == (50, 40)

        within(20, steps())


class TestFinalCalls:
    HISTORY = (
        *ASK.messages,
        Message("assistant", "", (ToolCall("c1", "search"),)),
        Message("tool", "found", tool_call_id="c1"),
        Message("user", "Answer now."),
    )

    @BOTH
    @pytest.mark.parametrize(
        ("tools", "choice"),
        [((), "auto"), ((), "none"), ((SEARCH,), "none")],
        ids=["stripped", "stripped none", "forbidden"],
    )
    def test_without_tools_or_with_forbidden_ones_nothing_is_offered_and_the_request_is_valid(
        self, spec, tools, choice
    ):
        async def steps():
            replies = ({"text": "final", "when": {"tools": False}}, {"tool": "search"})
            async with Talk(spec, *replies) as s:
                answer = await s.ask(messages=self.HISTORY, tools=tools, tool_choice=choice)

                assert answer.message.text == "final"
                assert s.server.ledger.problems == []
                assert s.server.ledger[0].offered == ()

        within(20, steps())


class TestRefused:
    @BOTH
    def test_an_open_tool_call_is_refused_as_the_provider_would(self, spec):
        async def steps():
            async with Talk(spec, {"text": "never"}) as s:
                error = await s.fail(messages=(*ASK.messages, Message("assistant", "", (ToolCall("c1", "search"),))))

                assert (error.reason, error.status) == ("invalid_request", 400)
                assert len(s.server.ledger.problems) == 1
                assert "c1" in s.server.ledger.problems[0]
                assert s.server.ledger[0].reply is None

        within(20, steps())

    @BOTH
    def test_a_script_that_is_used_up_says_so(self, spec):
        async def steps():
            async with Talk(spec, {"text": "once"}) as s:
                await s.ask()
                error = await s.fail()

                assert (error.reason, error.status) == ("provider", 500)
                assert "script has no reply left for this request" in error.message

        within(20, steps())


REASONS = "rate_limit context_exceeded overloaded auth invalid_request content_filter provider timeout network"


class TestFailures:
    @BOTH
    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("reason", REASONS.split())
    def test_every_reason_of_a_policy_that_a_provider_can_cause(self, spec, stream, reason):
        async def steps():
            async with Talk(spec, {"fail": reason}) as s:
                error = await s.fail(stream)

                assert error.reason == reason
                assert (error.partial, error.text, error.usage) == ("none", "", None)
                assert s.heard == []
                assert s.server.ledger.total == 1  # no retry by the client

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize(
        ("reply", "reason", "message"),
        [
            ({"status": 404}, "invalid_request", "HTTP 404"),
            ({"status": 400, "message": "too many tokens"}, "context_exceeded", "too many tokens"),
            ({"status": 500, "broken": "html"}, "provider", "HTTP 500: <html>"),
            ({"broken": "html"}, "provider", "HTTP 502: <html>"),
            ({"status": 302}, "unknown", "HTTP 302"),
            (
                {"status": 307, "headers": {"location": "https://api.example.com/v2"}},
                "unknown",
                "HTTP 307: the server redirects to https://api.example.com/v2; is the base URL right?",
            ),
            ({"status": 400, "code": "context_length_exceeded"}, "context_exceeded", "context_length_exceeded"),
        ],
    )
    def test_statuses_and_codes(self, spec, reply, reason, message):
        async def steps():
            async with Talk(spec, reply) as s:
                error = await s.fail()

                assert error.reason == reason
                assert message in error.message
                assert error.message.startswith(spec.split(":")[1] + ": ")

        within(20, steps())

    @BOTH
    def test_retry_after_in_seconds_and_as_a_date(self, spec):
        async def steps():
            date = formatdate(time.time() + 60, usegmt=True)
            replies = (
                {"fail": "rate_limit", "retry_after": 7},
                {"status": 503, "retry_after": date},
                {"fail": "rate_limit"},
            )
            async with Talk(spec, *replies) as s:
                seconds, later, without = [await s.fail() for _ in replies]

                assert seconds.retry_after_ms == 7000
                assert later.retry_after_ms is not None
                assert 50_000 < later.retry_after_ms <= 60_000
                assert without.retry_after_ms is None

        within(20, steps())

    @WAYS
    @pytest.mark.parametrize("broken", ["close", "reset"])
    def test_a_connection_closed_without_an_answer(self, spec, stream, transport, broken):
        async def steps():
            async with Talk(spec, {"broken": broken}, {"text": "again"}, transport=transport) as s:
                assert (await s.fail(stream)).reason == "network"
                assert (await s.ask(stream)).message.text == "again"

        within(20, steps())

    @WAYS
    def test_a_server_that_is_not_there(self, spec, stream, transport):
        async def steps():
            s = Talk(spec, {"text": "x"}, transport=transport)
            async with s:
                await s.server.stop()
                error = await s.fail(stream)

                assert error.reason == "network"
                await s.server.start()

        within(20, steps())

    @WAYS
    def test_a_body_cut_in_half(self, spec, stream, transport):
        async def steps():
            async with Talk(spec, {"text": "x" * 500, "broken": "cut"}, transport=transport) as s:
                assert (await s.fail(stream)).reason == "network"

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize("broken", ["invalid_json", "no_content", "empty"])
    def test_an_answer_that_makes_no_sense(self, spec, broken):
        async def steps():
            async with Talk(spec, {"text": "x", "broken": broken}) as s:
                error = await s.fail()

                assert error.reason == "provider"
                assert "Error" not in error.message

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize("stream", [False, True])
    def test_the_deadline_of_an_attempt(self, spec, stream):
        async def steps():
            async with Talk(spec, {"broken": "hang"}) as s:
                began = time.monotonic()
                error = await s.fail(stream, timeout=0.3)

                assert time.monotonic() - began < 15
                assert error.reason == "timeout"
                assert error.message.endswith("no complete answer within 0.3 s")

        within(20, steps())

    @WAYS
    def test_silence_longer_than_the_read_timeout(self, spec, stream, transport):
        async def steps():
            async with Talk(spec, {"broken": "hang"}, transport=transport, read_timeout=0.3) as s:
                assert (await s.fail(stream, timeout=None)).reason == "timeout"

        within(20, steps())


class TestBrokenStreams:
    TEXT = "one two three four five six seven eight nine ten"

    @BOTH
    @pytest.mark.parametrize("transport", ["httpx", "aiohttp"])
    @pytest.mark.parametrize(
        ("broken", "reason"),
        [
            ("cut", "network"),
            ("half_event", "network"),
            ("no_end", "network"),
            ("invalid_json", "provider"),
            ("hang", "timeout"),
        ],
    )
    def test_what_had_arrived_comes_with_the_error(self, spec, transport, broken, reason):
        async def steps():
            reply = {"text": self.TEXT, "broken": broken, "after": 5}
            async with Talk(spec, reply, reply, transport=transport) as s:
                error = await s.fail(True, timeout=0.5)
                assert error.reason == reason
                assert error.partial == "delivered"
                assert error.text == "".join(s.heard) != ""
                assert self.TEXT.startswith(error.text)

                unheard = await s.fail(True, timeout=0.5, listen=False)
                assert (unheard.partial, unheard.text) == ("held", error.text)

        within(20, steps())

    @BOTH
    @pytest.mark.parametrize("broken", ["cut", "half_event", "no_end", "no_content", "empty"])
    @pytest.mark.parametrize("text", ["", "Yes."])
    def test_a_short_answer_breaks_before_its_end_too(self, spec, text, broken):
        async def steps():
            async with Talk(spec, {"text": text, "broken": broken}) as s:
                assert (await s.fail(True)).reason == "network"

        within(20, steps())

    @BOTH
    def test_a_stream_cut_before_anything_was_said(self, spec):
        async def steps():
            async with Talk(spec, {"text": self.TEXT, "broken": "cut", "after": 0}) as s:
                error = await s.fail(True)

                assert (error.reason, error.partial) == ("network", "none")

        within(20, steps())

    @BOTH
    def test_an_error_in_the_middle_of_a_stream(self, spec):
        async def steps():
            async with Talk(spec, {"text": self.TEXT, "fail": "overloaded", "after": 5}) as s:
                error = await s.fail(True)

                assert error.reason == "overloaded"
                assert error.partial == "delivered"

        within(20, steps())

    def test_usage_known_so_far_comes_with_the_error(self):
        async def steps():
            reply = {"text": self.TEXT, "broken": "cut", "after": 5, "usage": {"input": 77, "output": 30}}
            async with Talk("anthropic:c", reply) as s:
                assert (await s.fail(True)).usage == Usage(77, 1)

        within(20, steps())

    @BOTH
    def test_a_tool_call_cut_in_half_is_never_a_reply(self, spec):
        async def steps():
            async with Talk(spec, {"tool": "search", "args": {"q": "x" * 50}, "broken": "cut", "after": 3}) as s:
                error = await s.fail(True)

                assert (error.reason, error.text) == ("network", "")
                assert error.partial == "held"

        within(20, steps())

    @BOTH
    def test_a_whole_answer_is_kept_though_its_end_mark_is_lost(self, spec):
        async def steps():
            ends = {"openai": 7, "anthropic": 9}[spec.split(":")[0]]  # just before the last event
            reply = {"text": self.TEXT, "broken": "cut", "after": ends, "usage": {"input": 5, "output": 6}}
            async with Talk(spec, reply) as s:
                assert (await s.ask(True)).message.text == self.TEXT

        within(20, steps())


class TestListeners:
    @BOTH
    def test_an_asynchronous_listener_is_awaited(self, spec):
        async def steps():
            heard = []

            async def listen(text: str) -> None:
                await asyncio.sleep(0)
                heard.append(text)

            async with Talk(spec, {"text": "some longer text to cut"}) as s:
                await s.client.complete(request(True), on_delta=listen, timeout=10)

                assert "".join(heard) == "some longer text to cut"

        within(20, steps())

    @BOTH
    def test_a_listener_that_fails_is_our_own_failure(self, spec):
        async def steps():
            def listen(text: str) -> None:
                raise TimeoutError("no screen")

            async with Talk(spec, {"text": "text"}) as s:
                with pytest.raises(ModelError) as caught:
                    await s.client.complete(request(True), on_delta=listen, timeout=10)

                assert (caught.value.reason, caught.value.partial) == ("host", "delivered")
                assert "TimeoutError: no screen" in caught.value.message

        within(20, steps())

    @BOTH
    def test_cancelling_closes_the_connection(self, spec):
        async def steps():
            async with Talk(spec, {"broken": "hang"}, {"text": "next"}) as s:
                task = asyncio.create_task(s.ask(True))
                while not s.server.ledger.total:
                    await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                while not s.server.ledger[0].client_left:
                    await asyncio.sleep(0.01)

                assert (await s.ask(True)).message.text == "next"

        within(20, steps())


class TestSecretsAndHeaders:
    KEY = "sk-secret-0815"

    @BOTH
    def test_the_key_is_sent_and_shown_nowhere(self, spec, monkeypatch, caplog):
        monkeypatch.setenv("SOME_KEY", self.KEY)

        async def steps():
            caplog.set_level(0)
            said = {"status": 401, "message": f"bad key {self.KEY}"}
            async with Talk(spec, said, api_key_env="SOME_KEY") as s:
                error = await s.fail()

                assert error.reason == "auth"
                assert self.KEY not in f"{error} {error!r} {s.client!r} {caplog.text}"
                assert "***" in error.message
                header = "authorization" if spec.startswith("openai") else "x-api-key"
                assert s.server.ledger[0].headers[header] == "***"
                assert self.KEY.encode() not in s.server.ledger.to_json().replace(b"bad key", b"")

        within(20, steps())

    @BOTH
    def test_the_idempotency_key_is_a_header(self, spec):
        async def steps():
            async with Talk(spec, {"text": "x", "times": 2}) as s:
                await s.client.complete(ASK, idempotency_key="run:7")
                await s.client.complete(ASK, idempotency_key="lauf ä\n")
                headers = [entry.headers["idempotency-key"] for entry in s.server.ledger]

                assert headers == ["run:7", "lauf%20%C3%A4%0A"]

        within(20, steps())


class TestConnections:
    @WAYS
    def test_calls_one_after_another_share_one_connection(self, spec, stream, transport):
        async def steps():
            opened = []
            async with Talk(spec, {"text": "x", "times": "always"}, transport=transport) as s:
                connected = s.server._http._connected
                s.server._http._server.close()
                await s.server._http._server.wait_closed()

                async def counted(reader, writer):
                    opened.append(writer)
                    await connected(reader, writer)

                async with await asyncio.start_server(counted, "127.0.0.1", s.server.port):
                    for _ in range(5):
                        await s.ask(stream)

                    assert len(opened) == 1
                    await s.client.aclose()

        within(20, steps())

    @BOTH
    def test_one_client_works_in_one_event_loop_after_another(self, spec):
        with Rehearsal(Script.of({"text": "x", "times": "always"})) as server:
            client = from_spec(spec, base_url=server.url)
            for _ in range(3):
                assert within(20, client.complete(ASK)).message.text == "x"
            within(20, client.aclose())
            within(20, client.aclose())

    @BOTH
    def test_many_at_once(self, spec):
        async def steps():
            async with Talk(spec, {"text": "x", "times": "always", "delay_ms": 20}) as s:
                answers = await asyncio.gather(*(s.ask(n % 2 == 0) for n in range(150)))

                assert len(answers) == s.server.ledger.total == 150

        within(60, steps())

    def test_a_transport_may_be_a_function_of_the_tests(self):
        async def steps():
            def answer(request: httpx.Request) -> httpx.Response:
                return httpx.Response(200, json={"choices": [{"message": {"content": request.url.host}}]})

            client = from_spec(
                "openai:m", base_url="http://a.example/v1", api_key_env=None, transport=httpx.MockTransport(answer)
            )

            assert (await client.complete(ASK)).message.text == "a.example"

        within(20, steps())
