"""Messages, Anthropic's format, as a gateway reads and changes it. The format only."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.clients.anthropic_reply import StreamAssembler, parse_reply
from engine.clients.sse import Event
from engine.clients.wire import decode, dict_of, encode, list_of, text_of
from engine.core.decisions import Call
from engine.core.messages import Message, Reply, ToolCall
from engine.gateway.wires import Json, Round, Shown

MOST_CALLS = 1024
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
} | {
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicWire:
    """See ``engine.gateway.wires.Wire``."""

    name = "anthropic"

    def messages(self, body: Json) -> list[Json]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise ValueError("`messages` must be a list of messages, and not empty")
        return messages

    def question(self, messages: Sequence[Json]) -> int:
        for n in range(len(messages) - 1, -1, -1):
            if messages[n].get("role") == "user" and not _of(messages[n], "tool_result"):
                return n + 1
        return next((n for n, m in enumerate(messages) if m.get("role") == "assistant"), len(messages))

    def neutral(self, message: Json) -> Message:
        calls = tuple(
            ToolCall(text_of(b.get("id")), text_of(b.get("name")), encode(b.get("input") or {}).decode())
            for b in _of(message, "tool_use")
        )
        role = "assistant" if message.get("role") == "assistant" else "user"
        return Message(role, "".join(text_of(b.get("text")) for b in _of(message, "text")), calls)  # type: ignore[arg-type]

    def results(self, messages: Iterable[Json]) -> list[Shown]:
        return [
            Shown(text_of(b.get("tool_use_id")), _text(b.get("content")), bool(b.get("is_error")))
            for message in messages
            for b in _of(message, "tool_result")
        ]

    def offered(self, body: Json) -> dict[str, str]:
        return {
            text_of(tool.get("name")): text_of(tool.get("name"))
            + text_of(tool.get("description"))
            + encode(tool.get("input_schema") or {}).decode()
            for tool in map(dict_of, list_of(body.get("tools")))
        }

    def largest_output(self, body: Json) -> int | None:
        most = body.get("max_tokens")
        return most if isinstance(most, int) else None

    def unfit(self, body: Json) -> str:
        return ""

    def parse(self, body: Json) -> Reply:
        return parse_reply(body, "", MOST_CALLS)

    def assembler(self) -> StreamAssembler:
        return StreamAssembler(MOST_CALLS)

    # Writing.

    def ruled(self, body: Json, call: Call, model: str) -> Json:
        made = dict(body)
        if model:
            made["model"] = model
        said = [*call.notices, *([call.instruction] if call.final and call.instruction else [])]
        if said:
            made["messages"] = _with_user(body["messages"], [{"type": "text", "text": text} for text in said])
        if call.hidden:
            _hide(made, call.hidden)
        if call.final:
            _withhold(made, forbid=call.tools == "forbid")
        if call.max_output is not None:
            most = made.get("max_tokens")
            made["max_tokens"] = min(most, call.max_output) if isinstance(most, int) else call.max_output
        return made

    def restored(self, messages: list[Json], start: int, rounds: Mapping[str, Round]) -> list[Json]:
        made: list[Json] = messages[:start]
        changed = False
        n = start
        while n < len(messages):
            message = messages[n]
            n += 1
            found = next((rounds[b["id"]] for b in _of(message, "tool_use") if b.get("id") in rounds), None)
            if found is None:
                made.append(message)
                continue
            changed = True
            made += [*found.before, found.message]
            answers = {call.id: _result(call.id, text) for call, text in found.refused}
            others: list[Json] = []
            if n < len(messages) and messages[n].get("role") == "user":
                answers |= {text_of(b.get("tool_use_id")): b for b in _of(messages[n], "tool_result")}
                others = [b for b in _blocks(messages[n]) if b.get("type") != "tool_result"]
                n += 1
            order = [b["id"] for b in _of(found.message, "tool_use")]
            placed = [answers.pop(id) for id in order if id in answers]
            made.append({"role": "user", "content": [*placed, *answers.values(), *others]})
        return made if changed else messages

    def round(self, message: Message, results: Sequence[tuple[ToolCall, str]]) -> list[Json]:
        return [self.reply(message), {"role": "user", "content": [_result(call.id, text) for call, text in results]}]

    def reply(self, message: Message) -> Json:
        calls = [_use(call) for call in message.tool_calls if call.kind == "function"]
        kept = [b for b in list_of((message.opaque or {}).get("anthropic")) if isinstance(b, dict)]
        if not kept:
            text: list[Json] = [{"type": "text", "text": message.text}] if message.text.strip() else []
            return {"role": "assistant", "content": text + calls}
        waiting = iter(calls)
        blocks = [next(waiting) if b.get("type") == "tool_use" else b for b in kept]
        return {"role": "assistant", "content": [b for b in blocks if b.get("type") != "text" or b["text"].strip()]}

    def cut(self, body: Json, calls: Sequence[ToolCall], kept: Sequence[ToolCall]) -> Json:
        waiting = iter(calls)
        blocks: list[Json] = []
        for block in map(dict_of, body["content"]):
            if block.get("type") != "tool_use":
                blocks.append(block)
            elif (call := next(waiting)) in kept:
                blocks.append({**block, "id": call.id})
        left = bool(kept)
        reason = body.get("stop_reason")
        return {**body, "content": blocks, "stop_reason": "end_turn" if reason == "tool_use" and not left else reason}

    def answer(self, text: str, model: str) -> Json:
        return {
            **_head(model),
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
        }

    def error(self, status: int, kind: str, message: str) -> Json:
        return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message, "code": kind}}

    def rewriter(self, body: Json) -> AnthropicRewriter:
        return AnthropicRewriter(text_of(body.get("model")))

    def path(self, base: str) -> str:
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def key_header(self, key: str) -> tuple[str, str]:
        return "x-api-key", key


class AnthropicRewriter:
    """See ``engine.gateway.wires.Rewriter``. Blocks get their numbers in the order in which the client sees them."""

    def __init__(self, model: str) -> None:
        self.shown = False
        self._model = model
        self._begun = False
        self._next = 0
        self._open: int | None = None
        """The block that the client has seen begin, and not end."""
        self.begin()

    def begin(self) -> None:
        self._places: dict[int, int] = {}
        """The client's number of each block that goes through, by the upstream's."""
        self._held: dict[int, list[Json]] = {}
        self._ends: list[Json] = []

    def take(self, event: Event) -> bytes:
        data = decode(event.data)
        kind = text_of(data.get("type")) or event.name
        if kind == "message_start":
            return self._start(event.data)
        if kind in ("message_delta", "message_stop"):
            self._ends.append(data)
            return b""
        if not kind.startswith("content_block_"):
            return _event(kind, event.data)
        index = data.get("index")
        if kind == "content_block_start":
            if dict_of(data.get("content_block")).get("type") == "tool_use":
                self._held[index] = [data]
                return b""
            self._places[index] = self._next
            self._next += 1
        elif index in self._held:
            self._held[index].append(data)
            return b""
        place = self._places[index]
        self.shown = True
        self._open = None if kind == "content_block_stop" else place
        return self._start() + _event(kind, event.data if place == index else encode({**data, "index": place}))

    def _start(self, data: bytes = b"") -> bytes:
        if self._begun:
            return b""
        self._begun = True
        if not data:
            head: Json = {**_head(self._model), "content": [], "stop_reason": None}
            data = encode({"type": "message_start", "message": head})
        return _event("message_start", data)

    def finish(self, reply: Reply, kept: Sequence[ToolCall], *, whole: bool) -> bytes:
        made = [self._start()]
        for events in self._chosen(reply, kept):
            for data in events:
                made.append(_event(data["type"], encode({**data, "index": self._next})))
            self._next += 1
        cut = bool(self._held) and not kept
        for data in self._ends:
            if cut and dict_of(data.get("delta")).get("stop_reason") == "tool_use":
                data = {**data, "delta": {**data["delta"], "stop_reason": "end_turn"}}
            made.append(_event(text_of(data.get("type")), encode(data)))
        if not any(data.get("type") == "message_stop" for data in self._ends):
            made.append(_event("message_stop", b'{"type":"message_stop"}'))
        return b"".join(made)

    def _chosen(self, reply: Reply, kept: Sequence[ToolCall]) -> list[list[Json]]:
        functions = [call for call in reply.message.tool_calls if call.kind == "function"]
        blocks = [self._held[index] for index in sorted(self._held)]
        found = []
        for call, (start, *rest) in zip(functions, blocks, strict=False):
            if call in kept:
                found.append([{**start, "content_block": {**start["content_block"], "id": call.id}}, *rest])
        return found

    def close(self, text: str) -> bytes:
        made = [self._start()]
        if self._open is not None:
            made.append(_event("content_block_stop", encode({"type": "content_block_stop", "index": self._open})))
            self._open = None
        if text:
            place = {"index": self._next}
            self._next += 1
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
            made += [
                _event("content_block_start", encode({"type": "content_block_start", **place, "content_block": block})),
                _event("content_block_delta", encode({"type": "content_block_delta", **place, "delta": delta})),
                _event("content_block_stop", encode({"type": "content_block_stop", **place})),
            ]
        usage = next((dict_of(d.get("usage")) for d in self._ends if d.get("usage")), {"output_tokens": 0})
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        made.append(_event("message_delta", encode({"type": "message_delta", "delta": ended, "usage": usage})))
        return b"".join(made) + _event("message_stop", b'{"type":"message_stop"}')

    def error(self, body: Json) -> bytes:
        return _event("error", encode(body))


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def _head(model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _blocks(message: Json) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in list_of(content) if isinstance(block, dict)]


def _of(message: Json, kind: str) -> list[Json]:
    return [block for block in _blocks(message) if block.get("type") == kind]


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in map(dict_of, content))
    return text_of(content)


def _use(call: ToolCall) -> Json:
    try:
        input = decode(call.arguments or "{}")
    except ValueError:
        input = None
    if not isinstance(input, dict):
        input = {"invalid_arguments": call.arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": input}


def _result(id: str, text: str) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": True}


def _with_user(messages: list[Json], blocks: list[Json]) -> list[Json]:
    """The messages with more text of the user at their end: roles alternate in this format."""
    if messages[-1].get("role") == "user":
        return [*messages[:-1], {**messages[-1], "content": [*_blocks(messages[-1]), *blocks]}]
    return [*messages, {"role": "user", "content": blocks}]


def _withhold(body: Json, *, forbid: bool) -> None:
    """No tools, or none to be called: the API wants them declared where a transcript has calls."""
    used = any(_of(m, "tool_use") or _of(m, "tool_result") for m in body["messages"])
    if body.get("tools") and (forbid or used):
        body["tool_choice"] = {"type": "none"}
        return
    body.pop("tools", None)
    body.pop("tool_choice", None)


def _hide(body: Json, hidden: Sequence[str]) -> None:
    tools = [tool for tool in list_of(body.get("tools")) if dict_of(tool).get("name") not in hidden]
    if not tools:
        _withhold(body, forbid=False)
        return
    body["tools"] = tools
    if dict_of(body.get("tool_choice")).get("name") in hidden:
        body.pop("tool_choice")
