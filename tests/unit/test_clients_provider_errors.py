"""Error bodies in the shapes that providers and servers send them, each with its reason. The content is invented."""

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from engine.clients import ModelError, OpenAIChat
from engine.clients.anthropic import Anthropic
from engine.clients.classify import CODES, asked_to_wait_ms, classify
from engine.clients.errors import read_error
from engine.core.messages import Message, Request
from engine.core.vocabulary import REASONS

FILES = sorted((Path(__file__).parent / "provider_errors").glob("*.json"))
ROWS = [
    pytest.param(file.stem, row, id=f"{file.stem}: {row['about']}")
    for file in FILES
    for row in json.loads(file.read_text())
]
REQUEST = Request(messages=(Message("user", "hello"),))


def test_all_of_them_are_here():
    assert [file.stem for file in FILES] == [
        "anthropic", "azure", "gemini", "llamacpp", "ollama", "openai", "openrouter", "vllm"
    ]  # fmt: skip
    assert len(ROWS) > 80
    assert {row.values[1]["reason"] for row in ROWS} <= set(REASONS)


def client(kind, respond):
    wire = Anthropic if kind == "anthropic" else OpenAIChat
    return wire("m", base_url="http://127.0.0.1:1", transport=httpx.MockTransport(respond))


def failure(kind, row):
    """The error of one attempt that is answered so: as a response, or (without a status) as an event of a stream."""
    streamed = row["status"] is None
    body = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"])

    def respond(request):
        if not streamed:
            return httpx.Response(row["status"], headers=row.get("headers"), text=body)
        event = f"event: error\ndata: {body}\n\n" if kind == "anthropic" else f"data: {body}\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=event)

    request = Request(messages=REQUEST.messages, stream=streamed)
    with pytest.raises(ModelError) as raised:
        asyncio.run(client(kind, respond).complete(request))
    return raised.value


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_the_reason_and_the_wait(kind, row):
    error = failure(kind, row)
    assert error.reason == row["reason"], error
    assert error.retry_after_ms == row.get("wait")


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_structured_codes_come_before_text(kind, row):
    """Whatever else the message says: where a code tells the reason, it stays."""
    info = read_error(row["body"])
    if info is None or not any(code.lower() in CODES for code in info.codes):
        return
    status = row["status"] if row["status"] not in (None, 200) else info.status
    misleading = "Rate limit! The prompt is too long, the context window is full, overloaded, content policy."
    assert classify(status, info.codes, misleading) == row["reason"]


class TestWaits:
    @pytest.mark.parametrize("delay", ["", "s", "5", "-3s", "1e3s", "5 s", "1.2.3s", "9" * 40 + "s", None, 5])
    def test_a_delay_that_is_none_is_ignored(self, delay):
        info = read_error({"error": {"message": "m", "details": [{"retryDelay": delay}]}})
        assert info is not None
        assert info.retry_after_ms is None

    def test_the_header_counts_before_the_body(self):
        body = {"error": {"message": "m", "details": [{"retryDelay": "9s"}]}}
        row = {"status": 429, "headers": {"retry-after": "2"}, "body": body}
        assert failure("gemini", row).retry_after_ms == 2000

    @pytest.mark.parametrize(
        ("exact", "expected"), [("1500", 1500), ("", 3000), ("x", 3000), ("-1", 3000), ("1.5", 3000)]
    )
    def test_milliseconds_count_before_seconds(self, exact, expected):
        assert asked_to_wait_ms({"retry-after-ms": exact, "retry-after": "3"}, 0.0) == expected


@pytest.mark.parametrize(
    "metadata",
    [
        {"raw": "{"},
        {"raw": 5},
        {"raw": "[]"},
        {"raw": "[" * 5000},
        {"raw": '{"error": {"metadata": {"raw": "{}"}}}'},
        [],
    ],
)
def test_a_router_may_say_anything(metadata):
    info = read_error({"error": {"message": "m", "code": 502, "metadata": metadata}})
    assert info is not None
    assert info.codes == ()
    assert info.status == 502
