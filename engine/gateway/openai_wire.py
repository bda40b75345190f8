"""Chat Completions, as a gateway reads and changes it. The format only."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

from engine.clients.openai_reply import StreamAssembler, parse_reply
from engine.clients.sse import Event
from engine.clients.wire import decode, dict_of, encode, list_of, text_of
from engine.core.decisions import Call
from engine.core.messages import Message, Reply, ToolCall
from engine.gateway.wires import Json, Round, Shown

MOST_CALLS = 1024
_MODES = ("auto", "none", "required")
_ABOUT_TOOLS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")


class OpenAIWire:
    """See ``engine.gateway.wires.Wire``.

    ``output_key`` bounds the output where a request does not: OpenAI itself refuses the old name for its reasoning
    models, many compatible servers know no other.
    """

    name = "openai"

    def __init__(self, output_key: str = "max_tokens") -> None:
        self._output_key = output_key

    def messages(self, body: Json) -> list[Json]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise ValueError("`messages` must be a list of messages, and not empty")
        return messages

    def question(self, messages: Sequence[Json]) -> int:
        for n in range(len(messages) - 1, -1, -1):
            if messages[n].get("role") == "user":
                return n + 1
        return next((n for n, m in enumerate(messages) if m.get("role") in ("assistant", "tool")), len(messages))

    def neutral(self, message: Json) -> Message:
        calls = tuple(
            ToolCall(
                text_of(call.get("id")),
                text_of(dict_of(call.get("function")).get("name")),
                text_of(dict_of(call.get("function")).get("arguments")) or "{}",
            )
            for call in map(dict_of, list_of(message.get("tool_calls")))
        )
        role = text_of(message.get("role"))
        role = {"developer": "system", "function": "tool"}.get(role, role)
        known = role if role in ("system", "user", "assistant", "tool") else "user"
        return Message(known, _text(message.get("content")), calls)  # type: ignore[arg-type]

    def results(self, messages: Iterable[Json]) -> list[Shown]:
        return [
            Shown(text_of(m.get("tool_call_id")), _text(m.get("content"))) for m in messages if m.get("role") == "tool"
        ]

    def offered(self, body: Json) -> dict[str, str]:
        named: dict[str, str] = {}
        for tool in map(dict_of, list_of(body.get("tools"))):
            about = dict_of(tool.get(text_of(tool.get("type"))) or tool.get("function"))
            name = text_of(about.get("name"))
            named[name] = name + text_of(about.get("description")) + encode(about.get("parameters") or {}).decode()
        return named

    def largest_output(self, body: Json) -> int | None:
        found = [body[key] for key in ("max_completion_tokens", "max_tokens") if isinstance(body.get(key), int)]
        return min(found, default=None)

    def unfit(self, body: Json) -> str:
        n = body.get("n")
        if isinstance(n, int) and n > 1 and body.get("tools"):
            return "`n` above 1 goes only without tools: nobody could say whose calls are executed"
        if body.get("functions"):
            return "`functions` is the old form of `tools`: only that one is governed"
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
            made["messages"] = [*body["messages"], *({"role": "user", "content": text} for text in said)]
        if call.hidden:
            _hide(made, call.hidden)
        if call.final:
            _withhold(made, forbid=call.tools == "forbid")
        if call.max_output is not None:
            _bound(made, call.max_output, self._output_key)
        if made.get("stream"):
            made["stream_options"] = {**dict_of(made.get("stream_options")), "include_usage": True}
        return made

    def restored(self, messages: list[Json], start: int, rounds: Mapping[str, Round]) -> list[Json]:
        made: list[Json] = messages[:start]
        changed = False
        n = start
        while n < len(messages):
            message = messages[n]
            n += 1
            ids = [text_of(c.get("id")) for c in map(dict_of, list_of(message.get("tool_calls")))]
            found = next((rounds[id] for id in ids if id in rounds), None)
            if found is None:
                made.append(message)
                continue
            changed = True
            answers: dict[str, Json] = {call.id: _result(call.id, text) for call, text in found.refused}
            while n < len(messages) and messages[n].get("role") == "tool":
                answers[text_of(messages[n].get("tool_call_id"))] = messages[n]
                n += 1
            order = [text_of(call["id"]) for call in found.message["tool_calls"]]
            placed = [answers.pop(id) for id in order if id in answers]
            made += [*found.before, found.message, *placed, *answers.values()]
        return made if changed else messages

    def round(self, message: Message, results: Sequence[tuple[ToolCall, str]]) -> list[Json]:
        return [self.reply(message), *(_result(call.id, text) for call, text in results)]

    def reply(self, message: Message) -> Json:
        kept = dict_of((message.opaque or {}).get("openai_chat"))
        extras = dict_of(kept.get("calls"))
        made: Json = {"role": "assistant", "content": message.text or None, **dict_of(kept.get("message"))}
        if message.tool_calls:
            made["tool_calls"] = [_call(c) | dict_of(extras.get(str(n))) for n, c in enumerate(message.tool_calls)]
        return made

    def cut(self, body: Json, calls: Sequence[ToolCall], kept: Sequence[ToolCall]) -> Json:
        choice = dict(body["choices"][0])
        message = dict(choice["message"])
        came = zip(calls, map(dict_of, list_of(message.pop("tool_calls", None))), strict=True)
        if left := [{**raw, "id": call.id} for call, raw in came if call in kept]:
            message["tool_calls"] = left
        elif choice.get("finish_reason") in ("tool_calls", "function_call"):
            choice["finish_reason"] = "stop"
        return {**body, "choices": [{**choice, "message": message}]}

    def answer(self, text: str, model: str) -> Json:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {**_head("chat.completion", model), "choices": [choice], "usage": usage}

    def error(self, status: int, kind: str, message: str) -> Json:
        return {"error": {"message": message, "type": "policy", "param": None, "code": kind}}

    def rewriter(self, body: Json) -> OpenAIRewriter:
        wanted = bool(dict_of(body.get("stream_options")).get("include_usage"))
        n = body.get("n")
        return OpenAIRewriter(text_of(body.get("model")), wanted, whole=isinstance(n, int) and n > 1)

    def path(self, base: str) -> str:
        return f"{base}/chat/completions"

    def key_header(self, key: str) -> tuple[str, str]:
        return "authorization", f"Bearer {key}"


class OpenAIRewriter:
    """See ``engine.gateway.wires.Rewriter``. ``usage``: the client wants to be told; ``whole``: there are several
    choices and no tools, so that nothing is held."""

    def __init__(self, model: str, usage: bool, whole: bool) -> None:
        self.shown = False
        self._usage, self._whole = usage, whole
        self._head = _head("chat.completion.chunk", model)
        self._begun = False
        self._pause = False
        """The next piece of text belongs to another reply than the one before."""
        self.begin()

    def begin(self) -> None:
        self._calls: list[bytes] = []
        self._finish: Json | None = None
        self._counted = b""
        self._plain = True
        self._pause = self.shown

    def take(self, event: Event) -> bytes:
        if event.data == b"[DONE]":
            return b""
        chunk = decode(event.data)
        choices = list_of(chunk.get("choices"))
        self._head = {key: chunk.get(key, value) for key, value in self._head.items()}
        if self._whole and choices:
            self.shown = True
            return _event(event.data)
        if not choices:
            self._counted = event.data
            return b""
        choice = dict_of(choices[0])
        delta = dict_of(choice.get("delta"))
        if delta.get("tool_calls") or choice.get("finish_reason"):
            return self._held(event, chunk, choice, delta)
        return self._through(event.data, chunk, choice, delta)

    def _held(self, event: Event, chunk: Json, choice: Json, delta: Json) -> bytes:
        calls, finish = delta.get("tool_calls"), choice.get("finish_reason")
        rest = {key: value for key, value in delta.items() if key != "tool_calls"}
        if finish:
            self._finish = {**chunk, "choices": [{**choice, "delta": {}}]}
        if calls:
            only = {**chunk, "choices": [{**choice, "delta": {"tool_calls": calls}, "finish_reason": None}]}
            self._calls.append(encode(only))
        if any(rest.get(key) for key in rest if key != "role"):
            cut = {**choice, "delta": rest, "finish_reason": None}
            return self._through(encode({**chunk, "choices": [cut]}), chunk, cut, rest)
        if "role" in rest and not self._begun:
            return self._start(chunk)
        return b""

    def _start(self, chunk: Json) -> bytes:
        self._begun = True
        choice = {"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
        return _event(encode({**self._head, "choices": [choice]}))

    def _through(self, data: bytes, chunk: Json, choice: Json, delta: Json) -> bytes:
        says = any(value for key, value in delta.items() if key != "role")
        if not says:
            if self._begun:
                return b""
            self._begun = True
            return _event(data)
        before = b""
        if self._pause and delta.get("content"):
            self._pause = False
            before = self._piece("\n\n")
        self._begun = self.shown = True
        return before + _event(data)

    def _piece(self, text: str) -> bytes:
        return self._chunk({"content": text} if self._begun else {"role": "assistant", "content": text})

    def _chunk(self, delta: Json, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(encode({**self._head, "choices": [choice]}))

    def finish(self, reply: Reply, kept: Sequence[ToolCall], *, whole: bool) -> bytes:
        made: list[bytes] = []
        if whole:
            made += map(_event, self._calls)
        else:
            made += [self._chunk({"tool_calls": [{"index": n, **_call(call)}]}) for n, call in enumerate(kept)]
        end = self._finish
        if end is None or (reply.message.tool_calls and not kept):
            made.append(self._chunk({}, "tool_calls" if kept else "stop"))
        else:
            made.append(_event(encode(end)))
        return b"".join(made) + self._end()

    def _end(self) -> bytes:
        return (_event(self._counted) if self._usage and self._counted else b"") + _event(b"[DONE]")

    def close(self, text: str) -> bytes:
        said = self._piece(f"\n\n{text}" if self.shown else text) if text else b""
        return said + self._chunk({}, "stop") + self._end()

    def error(self, body: Json) -> bytes:
        return _event(encode(body))


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _head(kind: str, model: str) -> Json:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _call(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _result(id: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": text}


def _text(content: object) -> str:
    if isinstance(content, list):
        return "".join(text_of(part.get("text")) for part in map(dict_of, content))
    return text_of(content)


def _withhold(body: Json, *, forbid: bool) -> None:
    """No tools, or none to be called."""
    if forbid and body.get("tools"):
        body["tool_choice"] = "none"
        return
    for key in _ABOUT_TOOLS:
        body.pop(key, None)


def _hide(body: Json, hidden: Sequence[str]) -> None:
    tools = [t for t in list_of(body.get("tools")) if dict_of(dict_of(t).get("function")).get("name") not in hidden]
    if not tools:
        for key in _ABOUT_TOOLS:
            body.pop(key, None)
        return
    body["tools"] = tools
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and dict_of(choice.get("function")).get("name") in hidden:
        body.pop("tool_choice")


def _bound(body: Json, most: int, otherwise: str) -> None:
    keys = [key for key in ("max_completion_tokens", "max_tokens") if body.get(key) is not None]
    for key in keys or [otherwise]:
        known = body.get(key)
        body[key] = min(most, known) if isinstance(known, int) else most
