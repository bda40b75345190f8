"""Sending a planned reply, with everything that is scripted to go wrong on the way."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from engine.rehearsal import faults, render_anthropic, render_openai
from engine.rehearsal.http_server import Exchange
from engine.rehearsal.plan import Plan
from engine.rehearsal.script import ScriptedReply
from engine.rehearsal.seen import Seen, Wire

JSON: Final = {"content-type": "application/json"}
_STREAM: Final = {"content-type": "text/event-stream", "cache-control": "no-cache"}
_PAGE: Final = b"<html><head><title>502 Bad Gateway</title></head><body><h1>Bad Gateway</h1></body></html>\n"
_NO_JSON: Final = b'{"id": "broken", "choices": [{"index": 0, "mess'
_NO_CONTENT: Final = b'{"id": "broken", "object": "nothing"}'
_BATCH: Final = 64 * 1024
_BULK_CALLS: Final = 1000
"""Above so many calls a whole body is sent in chunks, never held in one piece."""


async def send_fault(
    exchange: Exchange, wire: Wire, fault: faults.Fault, headers: dict[str, str], param: str | None = None
) -> None:
    """An error in the provider's shape."""
    await exchange.send(fault.status, {**JSON, **headers}, msgspec.json.encode(faults.body(wire, fault, param)))


def status_of(reply: ScriptedReply, seen: Seen) -> int | None:
    """The status this reply is answered with; ``None`` if the client gets no response at all."""
    fault = faults.scripted(reply, seen.wire)
    if reply.broken == "html":
        return reply.status or 502
    if fault is not None:
        return 200 if _streams(reply, seen, fault) else fault.status
    if reply.broken in ("close", "reset") or reply.fail == "network":
        return None
    return None if reply.broken == "hang" and not _stalls(reply, seen) else 200


def reports_usage(reply: ScriptedReply, seen: Seen) -> bool:
    """Does the client get to see the plan's usage, if all of the answer reaches it?"""
    wrong = reply.broken is not None or reply.fail == "network" or faults.scripted(reply, seen.wire) is not None
    return not wrong and (seen.report_usage or not seen.stream)


def _streams(reply: ScriptedReply, seen: Seen, fault: faults.Fault | None) -> bool:
    return seen.stream and (fault is None or reply.after is not None)


def _stalls(reply: ScriptedReply, seen: Seen) -> bool:
    return seen.stream and reply.after is not None


async def send_reply(exchange: Exchange, reply: ScriptedReply, plan: Plan, seen: Seen) -> None:
    """Answer as scripted.

    Raises:
        ConnectionError: the client left before the end.
    """
    if reply.delay_ms:
        await exchange.wait(reply.delay_ms / 1000)
    headers = {_request_id(seen.wire): f"req_{plan.number}", **reply.headers}
    if reply.retry_after is not None:
        headers["retry-after"] = str(reply.retry_after)
    fault = faults.scripted(reply, seen.wire)
    if reply.broken == "html":
        await exchange.send(reply.status or 502, {**headers, "content-type": "text/html"}, _PAGE)
    elif fault is not None and not _streams(reply, seen, fault):
        await send_fault(exchange, seen.wire, fault, headers)
    elif reply.broken == "close" or reply.fail == "network":
        exchange.close()
    elif reply.broken == "reset":
        exchange.reset()
    elif reply.broken == "hang" and not _stalls(reply, seen):
        await exchange.wait(None)
    elif seen.stream:
        await _stream(exchange, reply, plan, seen, headers, fault)
    else:
        await _whole(exchange, reply, plan, seen, headers)


async def _whole(exchange: Exchange, reply: ScriptedReply, plan: Plan, seen: Seen, headers: dict[str, str]) -> None:
    headers = {**JSON, **headers}
    pieces = render_openai.whole(plan) if seen.wire == "openai" else render_anthropic.whole(plan)
    if plan.number_of_calls > _BULK_CALLS and reply.broken is None:
        await exchange.begin(200, headers)
        for batch in _batched(pieces):
            await exchange.chunk(batch)
        await exchange.end()
        return
    body = b"".join(pieces)
    wrong = {"invalid_json": _NO_JSON, "no_content": _NO_CONTENT, "empty": b""}
    if reply.broken in wrong:
        await exchange.send(200, headers, wrong[reply.broken])
    elif reply.broken is None:
        await exchange.send(200, headers, body)
    else:  # what breaks a stream cuts a whole body in half
        await exchange.send(200, headers, body, only=len(body) // 2)
        exchange.close()


async def _stream(
    exchange: Exchange,
    reply: ScriptedReply,
    plan: Plan,
    seen: Seen,
    headers: dict[str, str],
    fault: faults.Fault | None,
) -> None:
    render: Any = render_openai if seen.wire == "openai" else render_anthropic
    events: Iterator[bytes] = render.events(plan, report_usage=seen.report_usage)
    await exchange.begin(200, {**_STREAM, **headers})
    if reply.broken is not None or fault is not None:
        known = list(itertools.islice(events, 100_000))
        if reply.after is None:  # half of them, but never a whole answer, however short it is
            ends = sum(1 for _ in render.end(plan, report_usage=seen.report_usage))
            after = min(len(known) // 2, len(known) - ends)
        else:
            after = min(reply.after, len(known) - 1)
        await _send_events(exchange, iter(known[:after]), reply.event_delay_ms)
        if fault is not None:
            await exchange.chunk(render.error_event(faults.body(seen.wire, fault)))
            await exchange.end()
        else:
            await _break_stream(exchange, reply, known[after])
        return
    await _send_events(exchange, events, reply.event_delay_ms)
    await exchange.end()


async def _break_stream(exchange: Exchange, reply: ScriptedReply, next_event: bytes) -> None:
    match reply.broken:
        case "hang":
            await exchange.wait(None)
        case "invalid_json":
            await exchange.chunk(b"data: " + _NO_JSON + b"\n\n")
            await exchange.end()
        case "half_event":
            await exchange.chunk(next_event[: len(next_event) // 2])
            exchange.close()
        case "no_end" | "empty" | "no_content":
            await exchange.end()
        case _:
            exchange.close()


async def _send_events(exchange: Exchange, events: Iterator[bytes], delay_ms: int) -> None:
    if not delay_ms:
        for batch in _batched(events):
            await exchange.chunk(batch)
        return
    for event in events:
        await exchange.chunk(event)
        await exchange.wait(delay_ms / 1000)


def _batched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces joined to a size worth a write."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _request_id(wire: Wire) -> str:
    return "x-request-id" if wire == "openai" else "request-id"
