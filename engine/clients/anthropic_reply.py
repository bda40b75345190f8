"""Replies of the Messages format, whole and streamed, into a neutral ``Reply``.

A stream is rebuilt into the blocks a whole reply would have had; one function reads both.
"""

from __future__ import annotations

from typing import Any

from engine.clients.attempt import failure_from
from engine.clients.base import ModelError
from engine.clients.errors import read_error
from engine.clients.sse import Event
from engine.clients.wire import (
    check_number_of_calls,
    count_of,
    decode,
    dict_of,
    encode,
    has_function_call,
    is_count,
    largest,
    list_of,
    text_of,
)
from engine.core.messages import Finish, Message, Reply, ToolCall, Usage

Block = dict[str, Any]

_FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "pause_turn": "pause",
}

_USAGE_FIELDS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

_STARTED_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def parse_reply(body: dict[str, Any], request_id: str, most_calls: int) -> Reply:
    """A whole reply of the Messages API. Raises ``ModelError`` for what is none, or has more than ``most_calls``."""
    content = body.get("content")
    if not isinstance(content, list):
        raise ModelError("provider", "the reply has no content", status=200)
    blocks = [block for block in content if isinstance(block, dict)]
    check_number_of_calls(sum(block.get("type") in _STARTED_CALLS for block in blocks), most_calls)
    arguments = [encode(block.get("input") or {}).decode() for block in blocks]
    return _reply(
        blocks,
        arguments,
        stop_reason=text_of(body.get("stop_reason")),
        usage=_usage(_report(body.get("usage"))),
        model=text_of(body.get("model")),
        request_id=request_id or text_of(body.get("id")),
    )


def _reply(
    blocks: list[Block], arguments: list[str], *, stop_reason: str, usage: Usage | None, model: str, request_id: str
) -> Reply:
    """``arguments`` holds, for each block that is a call, the JSON text of its input."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    opaque = False
    for block, raw in zip(blocks, arguments, strict=True):
        kind = block.get("type")
        if kind == "text":
            texts.append(text_of(block.get("text")))
            opaque = opaque or bool(block.get("citations")) or bool(calls)
        elif kind == "tool_use":
            calls.append(ToolCall(text_of(block.get("id")), text_of(block.get("name")), raw))
        else:
            opaque = True
            if kind in _STARTED_CALLS:
                calls.append(ToolCall(text_of(block.get("id")), text_of(block.get("name")), raw, "hosted"))
    finish = _FINISHES.get(stop_reason, "stop")
    if has_function_call(tuple(calls)):
        finish = "tool_calls" if finish == "stop" else finish
    elif finish == "tool_calls":
        finish = "stop"
    kept = {"anthropic": [_kept(block) for block in blocks]} if opaque else None
    return Reply(Message("assistant", "".join(texts), tuple(calls), opaque=kept), finish, usage, model, request_id)


def _kept(block: Block) -> Block:
    """A block to be sent again unchanged; of a call only its place, since the message has the call."""
    return {"type": "tool_use"} if block.get("type") == "tool_use" else block


def _report(value: Any) -> dict[str, int]:
    usage = dict_of(value)
    if not (is_count(usage.get("input_tokens")) or is_count(usage.get("output_tokens"))):
        return {}
    return {field: count_of(usage.get(field)) for field in _USAGE_FIELDS}


def _usage(report: dict[str, int]) -> Usage | None:
    """The format counts cached tokens beside the input; the neutral form counts them as part of it."""
    if not report:
        return None
    cached, written = report["cache_read_input_tokens"], report["cache_creation_input_tokens"]
    return Usage(report["input_tokens"] + cached + written, report["output_tokens"], cached, written)


class _Streamed:
    """A content block being streamed: as it began, and the pieces of its text and of its arguments."""

    __slots__ = ("block", "json", "pieces")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.pieces: dict[str, list[Any]] = {}
        self.json: list[str] = []

    def add(self, key: str, piece: Any) -> None:
        self.pieces.setdefault(key, []).append(piece)

    def whole(self) -> tuple[Block, str]:
        """The block as a whole reply would have it, and the raw JSON of its input."""
        block = dict(self.block)
        for key, pieces in self.pieces.items():
            if key == "citations":
                block[key] = list_of(block.get(key)) + pieces
            else:
                block[key] = text_of(block.get(key)) + "".join(pieces)
        raw = "".join(self.json)
        if not raw:
            return block, encode(block.get("input") or {}).decode()
        try:
            block["input"] = decode(raw)
        except ValueError:
            block["input"] = {}  # cut short by the provider; the raw text goes into the call
        return block, raw


_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class StreamAssembler:
    """Events of one streamed message, put together. See ``engine.clients.wire.Assembler``."""

    def __init__(self, most_calls: int) -> None:
        self.complete = False
        self.ended = False
        self._most_calls = most_calls
        self._calls = 0
        self._blocks: dict[int, _Streamed] = {}
        self._report: dict[str, int] = {}
        self._stop_reason = ""
        self._model = ""
        self._id = ""

    @property
    def started(self) -> bool:
        return bool(self._blocks)

    @property
    def text(self) -> str:
        return "".join(
            text_of(s.block.get("text")) + "".join(s.pieces.get("text", ()))
            for s in self._blocks.values()
            if s.block.get("type") == "text"
        )

    @property
    def usage(self) -> Usage | None:
        return _usage(self._report)

    def feed(self, event: Event) -> str:
        try:
            data = decode(event.data)
        except ValueError as exc:
            raise ModelError("provider", f"an event of the stream is not JSON ({exc})", status=200) from None
        kind = dict_of(data).get("type") or event.name
        if not isinstance(data, dict) or kind == "error" or data.get("error"):
            info = read_error(data)
            if info is None:
                raise ModelError("provider", "an event of the stream makes no sense", status=200)
            raise failure_from(info, None)
        if kind == "content_block_delta":
            return self._delta(data)
        if kind == "content_block_start":
            return self._start(data)
        if kind == "message_start":
            message = dict_of(data.get("message"))
            self._model, self._id = text_of(message.get("model")), text_of(message.get("id"))
            self._report = largest(self._report, _report(message.get("usage")))
        elif kind == "message_delta":
            self._stop_reason = text_of(dict_of(data.get("delta")).get("stop_reason")) or self._stop_reason
            self.complete = bool(self._stop_reason)
            self._report = largest(self._report, _report(data.get("usage")))
        elif kind == "message_stop":
            self.ended = True
            self.complete = self.complete or self.started
        return ""

    def _start(self, data: dict[str, Any]) -> str:
        block = dict_of(data.get("content_block"))
        if block.get("type") in _STARTED_CALLS:
            self._calls += 1
            check_number_of_calls(self._calls, self._most_calls)
        self._blocks[self._index(data)] = _Streamed(block)
        return text_of(block.get("text")) if block.get("type") == "text" else ""

    def _delta(self, data: dict[str, Any]) -> str:
        streamed = self._blocks.get(self._index(data))
        if streamed is None:
            raise ModelError("provider", "the stream adds to a content block that never began", status=200)
        delta = dict_of(data.get("delta"))
        kind = text_of(delta.get("type"))
        if kind == "input_json_delta":
            streamed.json.append(text_of(delta.get("partial_json")))
        elif kind == "citations_delta":
            streamed.add("citations", delta.get("citation"))
        elif kind in _DELTAS:
            key = _DELTAS[kind]
            piece = text_of(delta.get(key))
            streamed.add(key, piece)
            return piece if key == "text" else ""
        return ""

    def _index(self, data: dict[str, Any]) -> int:
        index = data.get("index")
        if not isinstance(index, int):
            raise ModelError("provider", "a content block of the stream has no index", status=200)
        return index

    def reply(self, request_id: str) -> Reply:
        whole = [self._blocks[index].whole() for index in sorted(self._blocks)]
        return _reply(
            [block for block, _ in whole],
            [raw for _, raw in whole],
            stop_reason=self._stop_reason,
            usage=self.usage,
            model=self._model,
            request_id=request_id or self._id,
        )
