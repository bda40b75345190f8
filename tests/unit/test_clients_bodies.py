"""Requests on the wire: each wire format's body, and that a provider accepts every closed conversation."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients import Anthropic, ModelError, OpenAIChat
from engine.core.messages import Message, Request, ToolCall, ToolSpec
from engine.rehearsal import check_anthropic, check_openai

URL = "http://127.0.0.1:9"
OPENAI = OpenAIChat("gpt-x", base_url=URL)
ANTHROPIC = Anthropic("claude-x", base_url=URL)
BOTH = pytest.mark.parametrize("client", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])

SEARCH = ToolSpec("search", "Find pages.", {"type": "object", "properties": {"q": {"type": "string"}}})
FETCH = ToolSpec("fetch")
HISTORY = (
    Message("system", "Be brief."),
    Message("user", "Who won?"),
    Message("assistant", "Let me look.", (ToolCall("c1", "search", '{"q": "cup"}'), ToolCall("c2", "fetch", ""))),
    Message("tool", "Uruguay", tool_call_id="c1"),
    Message("tool", "no such page", tool_call_id="c2", is_error=True),
)


def sent(client, request: Request) -> dict:
    return json.loads(client._http_request(request, None).content)


def problem(client, body: dict):
    if client is OPENAI:
        return check_openai.check(body)
    return check_anthropic.check(body, {"anthropic-version": "x"})


class TestOpenAI:
    def test_a_whole_request(self):
        body = sent(
            OPENAI, Request(HISTORY, (SEARCH, FETCH), "required", 100, stream=True, settings={"temperature": 0})
        )

        assert body == {
            "model": "gpt-x",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Who won?"},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "cup"}'}},
                        {"id": "c2", "type": "function", "function": {"name": "fetch", "arguments": "{}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "Uruguay"},
                {"role": "tool", "tool_call_id": "c2", "content": "no such page"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "search", "description": "Find pages.", "parameters": SEARCH.parameters},
                },
                {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object", "properties": {}}}},
            ],
            "tool_choice": "required",
            "max_tokens": 100,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
        }
        assert check_openai.check(body) is None

    def test_openais_own_host_is_sent_the_new_name_of_the_largest_output(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        body = sent(OpenAIChat("o9", max_output=7), Request(HISTORY, (SEARCH,)))

        assert body["max_completion_tokens"] == 7
        assert "max_tokens" not in body

    def test_a_failed_call_without_a_text_says_that_it_failed(self):
        messages = (*HISTORY[:4], Message("tool", "", tool_call_id="c2", is_error=True))

        assert sent(OPENAI, Request(messages))["messages"][-1]["content"] == "The call failed without a message."

    def test_what_the_server_wants_to_see_again_is_sent_again(self):
        kept = {"message": {"reasoning_content": "hm"}, "calls": {"1": {"extra_content": {"sig": "s"}}}}
        message = Message("assistant", "", HISTORY[2].tool_calls, opaque={"openai_chat": kept, "anthropic": [1]})
        body = sent(OPENAI, Request((HISTORY[1], message, *HISTORY[3:])))

        assert body["messages"][1]["reasoning_content"] == "hm"
        assert body["messages"][1]["content"] is None
        assert "extra_content" not in body["messages"][1]["tool_calls"][0]
        assert body["messages"][1]["tool_calls"][1]["extra_content"] == {"sig": "s"}


class TestAnthropic:
    def test_a_whole_request(self):
        body = sent(ANTHROPIC, Request(HISTORY, (SEARCH, FETCH), "required", 100, stream=True, settings={"top_k": 3}))

        assert body == {
            "model": "claude-x",
            "max_tokens": 100,
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Who won?"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me look."},
                        {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "cup"}},
                        {"type": "tool_use", "id": "c2", "name": "fetch", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "Uruguay"},
                        {"type": "tool_result", "tool_use_id": "c2", "content": "no such page", "is_error": True},
                    ],
                },
            ],
            "tools": [
                {"name": "search", "input_schema": SEARCH.parameters, "description": "Find pages."},
                {"name": "fetch", "input_schema": {"type": "object", "properties": {}}},
            ],
            "tool_choice": {"type": "any"},
            "stream": True,
            "top_k": 3,
        }
        assert problem(ANTHROPIC, body) is None

    def test_the_instruction_of_a_final_call_follows_the_results_in_one_user_message(self):
        body = sent(ANTHROPIC, Request((*HISTORY, Message("user", "Answer now."))))

        assert [block["type"] for block in body["messages"][-1]["content"]] == ["tool_result", "tool_result", "text"]

    def test_without_tools_the_names_in_the_history_are_declared_and_forbidden(self):
        body = sent(ANTHROPIC, Request(HISTORY))

        assert [tool["name"] for tool in body["tools"]] == ["search", "fetch"]
        assert body["tool_choice"] == {"type": "none"}
        assert problem(ANTHROPIC, body) is None

    def test_without_tools_and_without_calls_in_the_history_nothing_is_declared(self):
        body = sent(ANTHROPIC, Request(HISTORY[:2]))

        assert not body.keys() & {"tools", "tool_choice"}

    def test_tools_that_are_forbidden_keep_their_declarations(self):
        body = sent(ANTHROPIC, Request(HISTORY, (SEARCH, FETCH), "none"))

        assert body["tools"][0]["input_schema"] == SEARCH.parameters
        assert body["tool_choice"] == {"type": "none"}

    def test_messages_without_text_are_left_out_and_neighbours_joined(self):
        messages = (Message("user", "a"), Message("assistant", " \n"), Message("user", "b"))

        assert sent(ANTHROPIC, Request(messages))["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        ]

    @pytest.mark.parametrize("arguments", ["not json", "[1]", '"x"', "{", "null", '{"a": NaN}', "{" * 5000])
    def test_arguments_that_are_no_object_travel_inside_one(self, arguments):
        messages = (*HISTORY[:2], Message("assistant", "", (ToolCall("c", "search", arguments),)))
        body = sent(ANTHROPIC, Request((*messages, Message("tool", "bad", tool_call_id="c")), (SEARCH,)))

        assert body["messages"][1]["content"][0]["input"] == {"invalid_arguments": arguments}
        assert problem(ANTHROPIC, body) is None


class TestKeptBlocks:
    KEPT = (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use"},
        {"type": "tool_use"},
    )

    def blocks(self, text: str, *calls: ToolCall) -> list:
        message = Message("assistant", text, calls, opaque={"anthropic": list(self.KEPT)})
        results = (Message("tool", "r", tool_call_id=call.id) for call in calls)
        return sent(ANTHROPIC, Request((HISTORY[1], message, *results), (SEARCH,)))["messages"][1]["content"]

    def test_a_signed_reply_is_sent_again_with_the_ids_the_calls_have_now(self):
        blocks = self.blocks("I look.", ToolCall("new1", "search"), ToolCall("new2", "search"))

        assert blocks[:2] == list(self.KEPT[:2])
        assert [block["id"] for block in blocks[2:]] == ["new1", "new2"]

    def test_calls_that_were_removed_leave_no_block(self):
        assert [block["type"] for block in self.blocks("I look.", ToolCall("a", "search"))] == [
            "thinking",
            "text",
            "tool_use",
        ]

    def test_a_text_that_was_changed_replaces_the_old_one_in_its_place(self):
        blocks = self.blocks("Changed.", ToolCall("a", "search"))

        assert [block.get("text") for block in blocks] == [None, "Changed.", None]

    def test_blocks_of_another_wire_format_are_ignored(self):
        message = Message("assistant", "x", opaque={"openai_chat": {"message": {"reasoning_content": "hm"}}})

        assert sent(ANTHROPIC, Request((HISTORY[1], message)))["messages"][1]["content"] == [
            {"type": "text", "text": "x"}
        ]


class TestToolChoice:
    def test_one_tool_may_be_forced(self):
        request = Request(HISTORY, (SEARCH,), "search")

        assert sent(OPENAI, request)["tool_choice"] == {"type": "function", "function": {"name": "search"}}
        assert sent(ANTHROPIC, request)["tool_choice"] == {"type": "tool", "name": "search"}

    @BOTH
    def test_auto_is_the_providers_own_default_and_not_sent(self, client):
        assert "tool_choice" not in sent(client, Request(HISTORY, (SEARCH,)))

    @BOTH
    @pytest.mark.parametrize(("tools", "choice"), [((), "required"), ((), "search"), ((SEARCH,), "fetch")])
    def test_forcing_a_tool_that_is_not_declared_is_our_own_mistake(self, client, tools, choice):
        with pytest.raises(ModelError) as caught:
            sent(client, Request(HISTORY, tools, choice))

        assert caught.value.reason == "host"
        assert f"`{choice}`" in caught.value.message


class TestSettings:
    @BOTH
    @pytest.mark.parametrize("key", ["tool_choice", "tools", "messages", "model", "stream"])
    def test_what_the_engine_decides_cannot_be_slipped_in(self, client, key):
        with pytest.raises(ModelError) as caught:
            sent(client, Request(HISTORY, settings={key: "x"}))

        assert caught.value.reason == "host"
        assert f"`{key}`" in caught.value.message

    def test_parallel_tool_calls_is_dropped_with_the_tools(self):
        settings = {"parallel_tool_calls": False}

        assert sent(OPENAI, Request(HISTORY, (SEARCH,), settings=settings))["parallel_tool_calls"] is False
        assert "parallel_tool_calls" not in sent(OPENAI, Request(HISTORY, settings=settings))

    @BOTH
    def test_a_setting_that_is_no_json_is_our_own_mistake(self, client):
        with pytest.raises(ModelError) as caught:
            sent(client, Request(HISTORY, settings={"temperature": object()}))

        assert caught.value.reason == "host"

    @BOTH
    def test_a_request_without_messages_is_our_own_mistake(self, client):
        with pytest.raises(ModelError) as caught:
            sent(client, Request(()))

        assert (caught.value.reason, caught.value.message) == ("host", "the request has no messages")


IDS = st.sampled_from(["a", "a", "b", "run.1:0", "x" * 50, "ü"])
ARGUMENTS = st.sampled_from(["{}", "", '{"q": 1}', "[1]", "no json", '{"a": "\\ud83d\\ude00"}'])
TEXTS = st.sampled_from(["", " ", "text", "\n", "ends in space "])
OPAQUE = st.sampled_from(
    [
        None,
        {"anthropic": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "text"}]},
        {"anthropic": [{"type": "tool_use"}, {"type": "redacted_thinking", "data": "d"}]},
        {"openai_chat": {"message": {}, "calls": {"0": {}}}},
    ]
)


@st.composite
def conversations(draw) -> tuple[Message, ...]:
    """Closed ones: a question, rounds in which every call has its result, perhaps an instruction at the end."""
    messages = [Message("system", draw(TEXTS)), Message("user", "question")]
    for _ in range(draw(st.integers(0, 4))):
        ids = draw(st.lists(IDS, min_size=1, max_size=3))
        calls = tuple(ToolCall(own, draw(st.sampled_from(["search", "fetch"])), draw(ARGUMENTS)) for own in ids)
        messages.append(Message("assistant", draw(TEXTS), calls, opaque=draw(OPAQUE)))
        results = [Message("tool", draw(TEXTS), tool_call_id=own, is_error=draw(st.booleans())) for own in ids]
        messages.extend(results)
        if draw(st.booleans()):
            messages.append(Message("user", "go on"))
    return tuple(messages)


@BOTH
@given(
    messages=conversations(),
    tools=st.sampled_from([(), (SEARCH,), (SEARCH, FETCH)]),
    choice=st.data(),
    stream=st.booleans(),
)
def test_every_closed_conversation_becomes_a_request_that_the_provider_accepts(client, messages, tools, choice, stream):
    modes = ["auto", "none", "required", "search"] if tools else ["auto", "none"]
    body = sent(client, Request(messages, tools, choice.draw(st.sampled_from(modes)), stream=stream))

    assert problem(client, body) is None
