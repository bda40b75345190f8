"""A plan as Chat Completions bytes: a whole body, or the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from engine.core.messages import Usage
from engine.rehearsal.plan import Plan, PlannedCall

_encode = msgspec.json.encode
_CREATED = 1_700_000_000
"""Always the same, so that two rehearsals of one script differ in nothing."""
_CALLS = b'"@calls"'
_FINISHES = {"refusal": "stop", "pause": "stop"}


def whole(plan: Plan) -> Iterator[bytes]:
    """The body, in pieces where it asks for very many tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": plan.text or None, "refusal": plan.refusal or None}
    if plan.number_of_calls:
        message["tool_calls"] = "@calls"
    elif not plan.refusal:
        message["content"] = plan.text
    body = {
        "id": _id(plan),
        "object": "chat.completion",
        "created": _CREATED,
        "model": plan.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(plan)}],
    }
    if plan.usage is not None:
        body["usage"] = usage(plan.usage)
    head, marker, tail = _encode(body).partition(_CALLS)
    yield head
    if marker:
        for position, call in enumerate(plan.calls()):
            yield (b"," if position else b"[") + _encode(_call(call))
        yield b"]" + tail


def events(plan: Plan, *, report_usage: bool) -> Iterator[bytes]:
    """Each event of the stream, its end mark included."""
    sofar = plan.usage if plan.cumulative else None
    yield _chunk(plan, {"role": "assistant", "content": ""}, sofar)
    for piece in plan.pieces():
        yield _chunk(plan, {"content": piece}, sofar)
    if plan.refusal:
        yield _chunk(plan, {"refusal": plan.refusal}, sofar)
    for index, call in enumerate(plan.calls()):
        begin = _call(call)
        begin["function"] = {"name": call.name, "arguments": ""}
        yield _chunk(plan, {"tool_calls": [{"index": index} | begin]}, sofar)
        half = len(call.arguments) // 2
        for part in (call.arguments[:half], call.arguments[half:]):
            if part:
                yield _chunk(plan, {"tool_calls": [{"index": index, "function": {"arguments": part}}]}, sofar)
    yield from end(plan, report_usage=report_usage)


def end(plan: Plan, *, report_usage: bool) -> Iterator[bytes]:
    """The last events of the stream: with the first of them the answer is complete."""
    yield _chunk(plan, {}, plan.usage if plan.cumulative else None, finish=_finish(plan))
    if report_usage and plan.usage is not None:
        yield _event(_frame(plan, []) | {"usage": usage(plan.usage)})
    yield b"data: [DONE]\n\n"


def usage(value: Usage) -> dict[str, Any]:
    """Usage (tokens) as this wire writes it: what was cached is a part of its input."""
    return {
        "prompt_tokens": value.input,
        "completion_tokens": value.output,
        "total_tokens": value.input + value.output,
        "prompt_tokens_details": {"cached_tokens": value.cached, "cache_write_tokens": value.cache_write},
        "completion_tokens_details": {"reasoning_tokens": value.reasoning},
    }


def error_event(body: dict[str, Any]) -> bytes:
    return _event(body)


def _finish(plan: Plan) -> str:
    return _FINISHES.get(plan.finish, plan.finish)


def _id(plan: Plan) -> str:
    return f"chatcmpl-{plan.number}"


def _call(call: PlannedCall) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    return out if call.id is None else {"id": call.id} | out


def _chunk(plan: Plan, delta: dict[str, Any], sofar: Usage | None, finish: str | None = None) -> bytes:
    frame = _frame(plan, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])
    return _event(frame | {"usage": usage(sofar)} if sofar is not None else frame)


def _frame(plan: Plan, choices: list[Any]) -> dict[str, Any]:
    return {
        "id": _id(plan),
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": plan.model,
        "choices": choices,
    }


def _event(value: Any) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"
