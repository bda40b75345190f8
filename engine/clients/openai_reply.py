"""Chat Completions replies, whole and streamed, into a neutral ``Reply``.

Tolerant of what compatible servers leave out; strict about what would change an answer's meaning.
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

_FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def parse_reply(body: dict[str, Any], request_id: str, most_calls: int) -> Reply:
    """A whole chat completion. Raises ``ModelError`` for what is none, or has more calls than ``most_calls``."""
    choices = list_of(body.get("choices"))
    if not choices:
        raise ModelError("provider", "the reply has no choices", status=200)
    choice = dict_of(choices[0])
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ModelError("provider", "the reply's first choice has no message", status=200)
    raw_calls = list_of(message.get("tool_calls"))
    check_number_of_calls(len(raw_calls), most_calls)
    calls, extras = [], {}
    for position, raw in enumerate(map(dict_of, raw_calls)):
        function = dict_of(raw.get("function"))
        calls.append(
            ToolCall(text_of(raw.get("id")), text_of(function.get("name")), _arguments(function.get("arguments")))
        )
        if isinstance(raw.get("extra_content"), dict):
            extras[str(position)] = {"extra_content": raw["extra_content"]}
    return _reply(
        text=_content(message.get("content")),
        refusal=text_of(message.get("refusal")),
        calls=tuple(calls),
        finish=text_of(choice.get("finish_reason")),
        usage=_usage(_report(body.get("usage"))),
        model=text_of(body.get("model")),
        request_id=request_id or text_of(body.get("id")),
        opaque=_opaque(text_of(message.get("reasoning_content")), extras),
    )


def _reply(
    *,
    text: str,
    refusal: str,
    calls: tuple[ToolCall, ...],
    finish: str,
    usage: Usage | None,
    model: str,
    request_id: str,
    opaque: dict[str, Any] | None,
) -> Reply:
    ended = _FINISHES.get(finish, "stop")
    if has_function_call(calls):
        ended = "tool_calls" if ended == "stop" else ended  # several servers say `stop` after tool calls
    elif ended == "tool_calls":
        ended = "stop"
    if refusal and not calls:
        text, ended = text or refusal, "content_filter"
    message = Message("assistant", text, calls, opaque=opaque)
    return Reply(message, ended, usage, model, request_id)


def _content(value: Any) -> str:
    """Text of a message's content: a string, or (some servers) a list of parts."""
    if isinstance(value, list):
        return "".join(text_of(part.get("text")) for part in map(dict_of, value))
    return text_of(value)


def _arguments(value: Any) -> str:
    """Raw arguments. Some servers send an object where the format wants its text."""
    if isinstance(value, str):
        return value
    return "{}" if value is None else encode(value).decode()


def _opaque(reasoning: str, extras: dict[str, Any]) -> dict[str, Any] | None:
    """What some compatible servers want to see again: reasoning text, and signatures on tool calls."""
    kept: dict[str, Any] = {}
    if reasoning:
        kept["message"] = {"reasoning_content": reasoning}
    if extras:
        kept["calls"] = extras
    return {"openai_chat": kept} if kept else None


def _report(value: Any) -> dict[str, int]:
    """One usage report, flat; empty if there is none."""
    usage = dict_of(value)
    if not (is_count(usage.get("prompt_tokens")) or is_count(usage.get("completion_tokens"))):
        return {}
    prompt = dict_of(usage.get("prompt_tokens_details"))
    completion = dict_of(usage.get("completion_tokens_details"))
    return {
        "input": count_of(usage.get("prompt_tokens")),
        "output": count_of(usage.get("completion_tokens")),
        "cached": count_of(prompt.get("cached_tokens")),
        "cache_write": count_of(prompt.get("cache_write_tokens")),
        "reasoning": count_of(completion.get("reasoning_tokens")),
    }


def _usage(report: dict[str, int]) -> Usage | None:
    return Usage(**report) if report else None


class _Call:
    """A tool call being streamed."""

    __slots__ = ("arguments", "extra", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name: list[str] = []
        self.arguments: list[str] = []
        self.extra: dict[str, Any] | None = None


class StreamAssembler:
    """Chunks of one streamed completion, put together. See ``engine.clients.wire.Assembler``."""

    def __init__(self, most_calls: int) -> None:
        self.complete = False
        self.ended = False
        self._most_calls = most_calls
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._finish = ""
        self._report: dict[str, int] = {}
        self._model = ""
        self._id = ""

    @property
    def started(self) -> bool:
        return bool(self._text or self._refusal or self._reasoning or self._calls)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def usage(self) -> Usage | None:
        return _usage(self._report)

    def feed(self, event: Event) -> str:
        if event.data == b"[DONE]":
            self.ended = True
            self.complete = self.complete or self.started
            return ""
        try:
            chunk = decode(event.data)
        except ValueError as exc:
            raise ModelError("provider", f"an event of the stream is not JSON ({exc})", status=200) from None
        if not isinstance(chunk, dict) or chunk.get("error"):
            info = read_error(chunk)
            if info is None:
                raise ModelError("provider", "an event of the stream is not a JSON object", status=200)
            raise failure_from(info, None)
        self._model = self._model or text_of(chunk.get("model"))
        self._id = self._id or text_of(chunk.get("id"))
        self._report = largest(self._report, _report(chunk.get("usage")))
        choices = list_of(chunk.get("choices"))
        return self._choice(dict_of(choices[0])) if choices else ""

    def _choice(self, choice: dict[str, Any]) -> str:
        finish = text_of(choice.get("finish_reason"))
        if finish:
            self._finish, self.complete = finish, True
        delta = dict_of(choice.get("delta"))
        for raw in list_of(delta.get("tool_calls")):
            self._tool_call(dict_of(raw))
        if reasoning := text_of(delta.get("reasoning_content")):
            self._reasoning.append(reasoning)
        if refusal := text_of(delta.get("refusal")):
            self._refusal.append(refusal)
        text = _content(delta.get("content"))
        if text:
            self._text.append(text)
        return text

    def _tool_call(self, raw: dict[str, Any]) -> None:
        function = dict_of(raw.get("function"))
        call = self._call_for(raw.get("index"), text_of(raw.get("id")), text_of(function.get("name")))
        arguments = function.get("arguments")
        if arguments is not None:
            call.arguments.append(_arguments(arguments))
        if isinstance(raw.get("extra_content"), dict):
            call.extra = raw["extra_content"]

    def _call_for(self, index: Any, own_id: str, name: str) -> _Call:
        """The call a fragment belongs to.

        By index, but a new id with a name begins a new call: several servers give every call of a
        reply index 0. Without an index a name begins one, unless the id says it is still the last.
        """
        if isinstance(index, int):
            call = self._at_index.get(index)
            new = call is None or bool(name and own_id and call.id and own_id != call.id)
        else:
            call = self._calls[-1] if self._calls else None
            new = call is None or bool(name and not (own_id and own_id == call.id))
        if call is None or new:
            call = _Call()
            self._calls.append(call)
            check_number_of_calls(len(self._calls), self._most_calls)
        if isinstance(index, int):
            self._at_index[index] = call
        call.id = call.id or own_id
        if name:
            call.name.append(name)
        return call

    def reply(self, request_id: str) -> Reply:
        calls = tuple(ToolCall(c.id, _name(c.name), "".join(c.arguments) or "{}") for c in self._calls)
        extras = {str(n): {"extra_content": c.extra} for n, c in enumerate(self._calls) if c.extra is not None}
        return _reply(
            text=self.text,
            refusal="".join(self._refusal),
            calls=calls,
            finish=self._finish,
            usage=self.usage,
            model=self._model,
            request_id=request_id or self._id,
            opaque=_opaque("".join(self._reasoning), extras),
        )


def _name(pieces: list[str]) -> str:
    """A name comes whole; some servers repeat it in every fragment, some cut it."""
    return pieces[0] if len(set(pieces)) == 1 else "".join(pieces)
