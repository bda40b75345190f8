"""A plan as bytes of the Messages format: a whole body, or the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from engine.core.messages import Usage
from engine.rehearsal.plan import Plan, PlannedCall

_encode = msgspec.json.encode
_CONTENT = b'"@content"'
_FINISHES = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
}


def whole(plan: Plan) -> Iterator[bytes]:
    """The body, in pieces where it asks for very many tool calls."""
    body: dict[str, Any] = _frame(plan) | {
        "content": "@content",
        "stop_reason": _FINISHES[plan.finish],
        "stop_sequence": None,
    }
    if plan.usage is not None:
        body["usage"] = usage(plan.usage)
    head, _, tail = _encode(body).partition(_CONTENT)
    yield head + b"["
    comma = b""
    for block in _blocks(plan):
        yield comma + _encode(block)
        comma = b","
    yield b"]" + tail


def events(plan: Plan, *, report_usage: bool) -> Iterator[bytes]:
    """Each event of the stream, its end mark included. Usage is always reported in this format."""
    begin = _frame(plan) | {"content": [], "stop_reason": None, "stop_sequence": None}
    if plan.usage is not None and report_usage:
        begin["usage"] = usage(plan.usage) | {"output_tokens": min(1, plan.usage.output)}
    yield _event("message_start", {"message": begin})
    yield _event("ping", {})
    for index, block in enumerate(_blocks(plan)):
        yield from _block_events(index, block, plan.piece)
    yield from end(plan, report_usage=report_usage)


def end(plan: Plan, *, report_usage: bool) -> Iterator[bytes]:
    """The last events of the stream: with the first of them the answer is complete."""
    delta: dict[str, Any] = {"delta": {"stop_reason": _FINISHES[plan.finish], "stop_sequence": None}}
    if plan.usage is not None and report_usage:
        delta["usage"] = usage(plan.usage) if plan.cumulative else {"output_tokens": plan.usage.output}
    yield _event("message_delta", delta)
    yield _event("message_stop", {})


def usage(value: Usage) -> dict[str, Any]:
    """Usage (tokens) as this wire writes it: what was cached is no part of its input."""
    return {
        "input_tokens": value.input - value.cached - value.cache_write,
        "output_tokens": value.output,
        "cache_read_input_tokens": value.cached,
        "cache_creation_input_tokens": value.cache_write,
    }


def error_event(body: dict[str, Any]) -> bytes:
    return _event("error", body)


def _frame(plan: Plan) -> dict[str, Any]:
    return {"id": f"msg_{plan.number}", "type": "message", "role": "assistant", "model": plan.model}


def _blocks(plan: Plan) -> Iterator[dict[str, Any]]:
    said = plan.text or plan.refusal
    if said:
        yield {"type": "text", "text": said}
    for call in plan.calls():
        yield _call(call)
        if call.hosted:
            result = {"type": "text", "text": f"result of {call.name}"}
            yield {"type": f"{call.name}_tool_result", "tool_use_id": call.id, "content": [result]}


def _call(call: PlannedCall) -> dict[str, Any]:
    kind = "server_tool_use" if call.hosted else "tool_use"
    out: dict[str, Any] = {"type": kind, "name": call.name, "input": call.value}
    return out if call.id is None else out | {"id": call.id}


def _block_events(index: int, block: dict[str, Any], piece: int) -> Iterator[bytes]:
    begin, deltas = block, []
    if block["type"] == "text":
        text = block["text"]
        begin = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": text[at : at + piece]} for at in range(0, len(text), piece)]
    elif "input" in block:
        raw = block["input"] if isinstance(block["input"], str) else _encode(block["input"]).decode()
        begin = block | {"input": {}}
        half = len(raw) // 2
        parts = ("", raw[:half], raw[half:]) if raw != "{}" else ("",)
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    yield _event("content_block_start", {"index": index, "content_block": begin})
    for delta in deltas:
        yield _event("content_block_delta", {"index": index, "delta": delta})
    yield _event("content_block_stop", {"index": index})


def _event(name: str, value: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode({"type": name} | value) + b"\n\n"
