"""Replies off the wire: finishes, calls, usage; whole and streamed give the same; nonsense gives one clear error."""

import contextlib
import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients import anthropic_reply, openai_reply
from engine.clients.base import ModelError
from engine.clients.sse import Event
from engine.core.messages import ToolCall, Usage


def openai(message: dict, finish: str | None = "stop", **more):
    body = {"id": "r1", "model": "m", "choices": [{"message": message, "finish_reason": finish}], **more}
    return openai_reply.parse_reply(body, "", 10)


def openai_stream(*deltas: dict, most: int = 10):
    assembler = openai_reply.StreamAssembler(most)
    text = "".join(assembler.feed(Event("message", json.dumps(d).encode())) for d in deltas)
    return assembler, text


def delta(finish: str | None = None, usage=None, **fields) -> dict:
    chunk = {"id": "r1", "model": "m", "choices": [{"delta": fields, "finish_reason": finish}]}
    return chunk | ({"usage": usage} if usage else {})


def call(index, own=None, name=None, arguments=None) -> dict:
    raw = {"function": {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}}
    return raw | ({} if index is None else {"index": index}) | ({} if own is None else {"id": own})


def anthropic(content: list, stop: str | None = "end_turn", **more):
    return anthropic_reply.parse_reply(
        {"id": "r1", "model": "m", "content": content, "stop_reason": stop} | more, "", 10
    )


def anthropic_stream(*events: dict, most: int = 10):
    assembler = anthropic_reply.StreamAssembler(most)
    text = "".join(assembler.feed(Event(e.get("type", "x"), json.dumps(e).encode())) for e in events)
    return assembler, text


class TestOpenAIFinishes:
    CALL: ClassVar = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}

    @pytest.mark.parametrize(
        ("message", "said", "finish"),
        [
            ({"content": "x"}, "stop", "stop"),
            ({"content": "x"}, "length", "length"),
            ({"content": ""}, "content_filter", "content_filter"),
            ({"content": "x"}, None, "stop"),
            ({"content": "x"}, "something_new", "stop"),
            ({"content": "x"}, "tool_calls", "stop"),
            (CALL, "tool_calls", "tool_calls"),
            (CALL, "stop", "tool_calls"),
            (CALL, None, "tool_calls"),
            (CALL, "length", "length"),
            ({"content": None, "refusal": "No."}, "stop", "content_filter"),
        ],
    )
    def test_finish(self, message, said, finish):
        assert openai(message, said).finish == finish

    def test_a_refusal_is_the_text_when_there_is_no_other(self):
        assert openai({"content": None, "refusal": "No."}).message.text == "No."


class TestOpenAICalls:
    def test_ids_are_left_as_they_are(self):
        raw = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}] * 2 + [{"function": {"name": "g"}}]

        assert openai({"tool_calls": raw}).message.tool_calls == (
            ToolCall("a", "f"),
            ToolCall("a", "f"),
            ToolCall("", "g"),
        )

    def test_arguments_are_the_raw_text_whatever_it_is(self):
        raw = [{"id": "a", "function": {"name": "f", "arguments": ' {"q" : 1'}}]

        assert openai({"tool_calls": raw}).message.tool_calls[0].arguments == ' {"q" : 1'

    def test_arguments_sent_as_an_object_become_text(self):
        raw = [{"id": "a", "function": {"name": "f", "arguments": {"q": 1}}}]

        assert openai({"tool_calls": raw}).message.tool_calls[0].arguments == '{"q":1}'

    def test_text_in_parts_is_joined(self):
        assert openai({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}).message.text == "ab"

    @pytest.mark.parametrize(
        "fragments",
        [
            [call(0, "a", "f", ""), call(0, arguments='{"x"'), call(0, arguments=": 1}"), call(1, "b", "g", "{}")],
            [call(0, "a", "f", '{"x": 1}'), call(0, "b", "g", "{}")],
            [call(None, "a", "f", '{"x"'), call(None, arguments=": 1}"), call(None, "b", "g", "{}")],
            [call(0, "a", "f", '{"x"'), call(0, "a", "f", ": 1}"), call(1, "b", "g", "{}")],
            [call(0, "a", "f", '{"x"'), call(1, "b", "g"), call(1, arguments="{}"), call(0, arguments=": 1}")],
        ],
        ids=["by index", "every index 0", "no index", "id and name repeated", "interleaved"],
    )
    def test_streamed_calls_are_put_together(self, fragments):
        assembler, _ = openai_stream(*(delta(tool_calls=[f]) for f in fragments), delta("tool_calls"))

        assert assembler.reply("").message.tool_calls == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", "{}"))

    def test_two_calls_of_one_name_without_ids_and_indexes_stay_two(self):
        assembler, _ = openai_stream(delta(tool_calls=[call(None, None, "f", "{}"), call(None, None, "f", "{}")]))

        assert assembler.reply("").message.tool_calls == (ToolCall("", "f"), ToolCall("", "f"))

    def test_more_calls_than_the_bound_end_the_attempt(self):
        with pytest.raises(ModelError, match="more than 3 tool calls"):
            openai_stream(*(delta(tool_calls=[call(n, f"c{n}", "f")]) for n in range(9)), most=3)
        with pytest.raises(ModelError, match="more than 10 tool calls"):
            openai({"tool_calls": [{"id": "a", "function": {"name": "f"}}] * 11})


class TestOpenAIUsage:
    FULL: ClassVar = {
        "prompt_tokens": 100,
        "completion_tokens": 40,
        "total_tokens": 140,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 25},
    }

    def test_every_category(self):
        assert openai({"content": "x"}, usage=self.FULL).usage == Usage(100, 40, 60, 0, 25)

    @pytest.mark.parametrize(
        "usage", [None, {}, [], "many", {"prompt_tokens": "7"}, {"prompt_tokens": True}, {"total_tokens": 9}]
    )
    def test_what_is_no_report_is_none(self, usage):
        assert openai({"content": "x"}, usage=usage).usage is None

    @pytest.mark.parametrize("bad", [-5, 1.5, None, "9"])
    def test_a_field_that_makes_no_sense_is_zero(self, bad):
        assert openai({"content": "x"}, usage={"prompt_tokens": 7, "completion_tokens": bad}).usage == Usage(7, 0)

    def test_cumulative_reports_count_once_whatever_their_order(self):
        reports = [{"prompt_tokens": 100, "completion_tokens": n} for n in (1, 40, 25)]
        assembler, _ = openai_stream(*(delta(content="x", usage=r) for r in reports), delta("stop"))

        assert assembler.usage == Usage(100, 40)

    def test_usage_in_a_last_chunk_without_choices(self):
        assembler, _ = openai_stream(delta(content="x"), delta("stop"), {"choices": [], "usage": self.FULL})

        assert assembler.usage == Usage(100, 40, 60, 0, 25)


class TestAnthropicFinishes:
    @pytest.mark.parametrize(
        ("stop", "finish"),
        [
            ("end_turn", "stop"),
            ("stop_sequence", "stop"),
            ("max_tokens", "length"),
            ("model_context_window_exceeded", "length"),
            ("refusal", "content_filter"),
            ("pause_turn", "pause"),
            ("tool_use", "stop"),
            ("something_new", "stop"),
            (None, "stop"),
        ],
    )
    def test_finish_without_calls(self, stop, finish):
        assert anthropic([{"type": "text", "text": "x"}], stop).finish == finish

    @pytest.mark.parametrize(
        ("stop", "finish"), [("tool_use", "tool_calls"), ("end_turn", "tool_calls"), ("max_tokens", "length")]
    )
    def test_finish_with_a_call(self, stop, finish):
        assert anthropic([{"type": "tool_use", "id": "c", "name": "f", "input": {}}], stop).finish == finish


class TestAnthropicContent:
    THINKING: ClassVar = {"type": "thinking", "thinking": "hm", "signature": "s"}

    def test_signed_blocks_are_kept_to_be_sent_again(self):
        reply = anthropic(
            [
                self.THINKING,
                {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"q": 1}},
            ]
        )

        assert reply.message.text == "x"
        assert reply.message.tool_calls == (ToolCall("c", "f", '{"q":1}'),)
        assert reply.message.opaque == {
            "anthropic": [self.THINKING, {"type": "text", "text": "x"}, {"type": "tool_use"}]
        }

    def test_an_ordinary_reply_keeps_nothing(self):
        reply = anthropic([{"type": "text", "text": "x"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}])

        assert reply.message.opaque is None

    def test_calls_the_provider_executes_itself_are_hosted(self):
        blocks = [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        ]
        reply = anthropic(blocks, "pause_turn")

        assert reply.message.tool_calls == (ToolCall("s", "web_search", '{"q":1}', "hosted"),)
        assert reply.finish == "pause"
        assert reply.message.opaque == {"anthropic": blocks}

    def test_cached_tokens_are_part_of_the_input(self):
        usage = {
            "input_tokens": 10,
            "output_tokens": 5,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 7,
        }

        assert anthropic([], usage=usage).usage == Usage(107, 5, 90, 7)

    def test_more_calls_than_the_bound_end_the_attempt(self):
        with pytest.raises(ModelError, match="more than 10 tool calls"):
            anthropic([{"type": "tool_use", "id": "c", "name": "f", "input": {}}] * 11)


class TestAnthropicStream:
    START: ClassVar = {
        "type": "message_start",
        "message": {"id": "r1", "model": "m", "usage": {"input_tokens": 25, "output_tokens": 1}},
    }

    def block(self, index: int, begin: dict, *deltas: dict) -> list[dict]:
        return [
            {"type": "content_block_start", "index": index, "content_block": begin},
            *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
            {"type": "content_block_stop", "index": index},
        ]

    def test_all_kinds_of_blocks_are_rebuilt(self):
        events = [
            self.START,
            *self.block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "h"},
                {"type": "thinking_delta", "thinking": "m"},
                {"type": "signature_delta", "signature": "s"},
            ),
            *self.block(
                1,
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": "He"},
                {"type": "text_delta", "text": "llo"},
                {"type": "citations_delta", "citation": {"n": 1}},
            ),
            *self.block(
                2,
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"q": '},
                {"type": "input_json_delta", "partial_json": "1}"},
            ),
            {"type": "ping"},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 15}},
            {"type": "message_stop"},
        ]
        assembler, text = anthropic_stream(*events)
        reply = assembler.reply("")

        assert text == assembler.text == reply.message.text == "Hello"
        assert reply.message.tool_calls == (ToolCall("c", "f", '{"q": 1}'),)
        assert reply.usage == Usage(25, 15)
        assert reply.finish == "tool_calls"
        assert (assembler.complete, assembler.ended) == (True, True)
        assert reply.message.opaque == {
            "anthropic": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "Hello", "citations": [{"n": 1}]},
                {"type": "tool_use"},
            ]
        }

    def test_arguments_cut_short_stay_as_they_came(self):
        begin = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        events = self.block(0, begin, {"type": "input_json_delta", "partial_json": '{"q": "ab'})
        end = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}
        assembler, _ = anthropic_stream(self.START, *events, end)

        assert assembler.reply("").message.tool_calls == (ToolCall("c", "f", '{"q": "ab'),)
        assert assembler.reply("").finish == "length"

    def test_a_later_report_may_repeat_the_input(self):
        later = {"input_tokens": 25, "output_tokens": 15, "cache_read_input_tokens": 5}
        assembler, _ = anthropic_stream(self.START, {"type": "message_delta", "delta": {}, "usage": later})

        assert assembler.usage == Usage(30, 15, 5)

    @pytest.mark.parametrize(
        ("event", "reason", "message"),
        [
            (
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
                "overloaded",
                "Overloaded",
            ),
            ({"type": "error"}, "provider", "makes no sense"),
            ({"type": "content_block_delta", "index": 4, "delta": {}}, "provider", "never began"),
            ({"type": "content_block_start", "content_block": {}}, "provider", "no index"),
        ],
    )
    def test_an_error_or_nonsense_ends_the_attempt(self, event, reason, message):
        with pytest.raises(ModelError, match=message) as caught:
            anthropic_stream(self.START, event)

        assert caught.value.reason == reason


class TestNonsense:
    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({}, "the reply has no choices"),
            ({"choices": None}, "the reply has no choices"),
            ({"choices": []}, "the reply has no choices"),
            ({"choices": [7]}, "first choice has no message"),
            ({"choices": [{"message": None}]}, "first choice has no message"),
        ],
    )
    def test_a_completion_without_its_parts(self, body, message):
        with pytest.raises(ModelError, match=message) as caught:
            openai_reply.parse_reply(body, "", 10)

        assert caught.value.reason == "provider"

    @pytest.mark.parametrize("body", [{}, {"content": None}, {"content": "text"}])
    def test_a_message_without_content(self, body):
        with pytest.raises(ModelError, match="the reply has no content") as caught:
            anthropic_reply.parse_reply(body, "", 10)

        assert caught.value.reason == "provider"

    @pytest.mark.parametrize("data", [b"{", b"[1]", b"7", b"\xff", b"[" * 100_000])
    @pytest.mark.parametrize("assembler", [openai_reply.StreamAssembler, anthropic_reply.StreamAssembler])
    def test_an_event_that_is_no_object(self, assembler, data):
        with pytest.raises(ModelError) as caught:
            assembler(10).feed(Event("message", data))

        assert caught.value.reason == "provider"


WORDS = """choices message delta content tool_calls function name arguments id index usage type text input error
finish_reason prompt_tokens completion_tokens content_block stop_reason input_tokens partial_json code
prompt_tokens_details refusal extra_content reasoning_content"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False)
JSON = st.recursive(
    SCALARS | st.sampled_from(["", "text", "tool_use"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["choices", "content", "usage", "model", "id", "stop_reason"]), JSON))
def test_any_json_is_a_reply_or_a_clear_error(body):
    for parse in (openai_reply.parse_reply, anthropic_reply.parse_reply):
        with contextlib.suppress(ModelError):
            assert parse(body, "", 10).message.role == "assistant"


NAMES = "message_start content_block_start content_block_delta content_block_stop message_delta message_stop"


@given(st.lists(st.tuples(st.sampled_from(NAMES.split()), JSON), max_size=8))
def test_any_events_are_a_reply_or_a_clear_error(events):
    for assembler in (openai_reply.StreamAssembler(10), anthropic_reply.StreamAssembler(10)):
        with contextlib.suppress(ModelError):
            for kind, value in events:
                data = {"index": 0, **value, "type": kind} if isinstance(value, dict) else value
                assembler.feed(Event(kind, json.dumps(data).encode()))
            assert assembler.reply("").message.role == "assistant"
