"""What a provider refuses: each rule with a request that breaks it alone, in both wire formats."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rehearsal import check_anthropic, check_openai

HEADERS = {"anthropic-version": "2023-06-01"}


def o_call(own: str, **changes) -> dict:
    return {"id": own, "type": "function", "function": {"name": "f", "arguments": "{}"}} | changes


def o_result(own: str) -> dict:
    return {"role": "tool", "tool_call_id": own, "content": "r"}


O_USER = {"role": "user", "content": "q"}
O_ASKS = {"role": "assistant", "content": None, "tool_calls": [o_call("a"), o_call("b")]}
O_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
OPENAI = {"model": "m", "messages": [O_USER, O_ASKS, o_result("a"), o_result("b"), O_USER], "tools": [O_TOOL]}

CONTENT = "expected a string or an array"


def openai(*messages, **changes) -> str | None:
    body = copy.deepcopy(OPENAI)
    if messages:
        body["messages"] = list(messages)
    body |= changes
    problem = check_openai.check({key: value for key, value in body.items() if value is not ...})
    return problem.message if problem else None


class TestOpenAI:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"tool_choice": "none", "parallel_tool_calls": False, "stream": True, "stream_options": {}},
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "max_tokens": 5},
            {"tools": ...},
            {
                "messages": [
                    {"role": "developer", "content": "s"},
                    {"role": "user", "content": [{"type": "text", "text": "x"}]},
                ]
            },
            {"messages": [O_USER, {"role": "assistant", "content": ""}, O_USER, O_USER]},
            {"messages": [O_USER, O_ASKS, o_result("b"), o_result("a"), O_ASKS, o_result("a"), o_result("b")]},
        ],
    )
    def test_a_valid_request(self, changes):
        assert openai(**changes) is None

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model": ...}, "you must provide a model parameter"),
            ({"model": 5}, "you must provide a model parameter"),
            ({"messages": ...}, "Invalid 'messages'"),
            ({"messages": []}, "Invalid 'messages'"),
            ({"max_output": 5}, "Unrecognized request argument supplied: max_output"),
            ({"max_tokens": 0}, "Invalid 'max_tokens'"),
            ({"max_tokens": True}, "Invalid 'max_tokens'"),
            ({"max_tokens": 5, "max_completion_tokens": 5}, "at the same time is not supported"),
            ({"stream": "yes"}, "Invalid type for 'stream'"),
            ({"stream_options": {}}, "only allowed when 'stream' is enabled"),
            ({"tools": []}, "[] is too short"),
            ({"tools": [O_TOOL | {"function": {"name": f"f{n}"}} for n in range(129)]}, "array too long"),
            ({"tools": [5]}, "Invalid 'tools[0]'"),
            ({"tools": [{"type": "function", "function": {"name": "has space"}}]}, "Invalid 'tools[0].function.name'"),
            ({"tools": [O_TOOL, O_TOOL]}, "declared twice"),
            (
                {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
                "Invalid schema",
            ),
            ({"tools": ..., "tool_choice": "auto"}, "'tool_choice' is only allowed when 'tools' are specified"),
            ({"tools": ..., "parallel_tool_calls": True}, "'parallel_tool_calls' is only allowed when 'tools'"),
            ({"tool_choice": "any"}, "Invalid value: 'any'"),
            ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "Tool choice 'g' not found"),
            ({"tool_choice": {"name": "f"}}, "Invalid value for 'tool_choice'"),
        ],
    )
    def test_parameters(self, changes, message):
        assert message in (openai(**changes) or "accepted")

    @pytest.mark.parametrize(
        ("messages", "message"),
        [
            ([O_USER, O_ASKS], "did not have response messages: a, b"),
            ([O_USER, O_ASKS, o_result("a")], "response messages: b"),
            ([O_USER, O_ASKS, o_result("a"), O_USER, o_result("b")], "response messages: b"),
            (
                [O_USER, O_ASKS, o_result("a"), O_ASKS, o_result("a"), o_result("b")],
                "response messages: b",
            ),
            ([O_USER, o_result("a")], "must be a response to a preceding message"),
            ([O_USER, O_ASKS, o_result("a"), o_result("b"), O_USER, o_result("a")], "must be a response to"),
            ([O_USER, O_ASKS, o_result("a"), o_result("x")], "must be a response to a preceding message"),
            ([O_USER, O_ASKS, o_result("a"), o_result("a"), o_result("b")], "has been answered already"),
            ([O_USER, O_ASKS, {"role": "tool", "content": "r"}], "Missing parameter 'tool_call_id'"),
            ([O_USER, O_ASKS, {"role": "tool", "tool_call_id": "a", "content": None}], CONTENT),
            ([O_USER, {"role": "assistant", "content": "x", "tool_calls": []}], "at least 1 element"),
            ([O_USER, {"role": "assistant", "content": None}], "expected a string, got null"),
            ([O_USER, {"role": "assistant", "content": 5}], CONTENT),
            ([O_USER, {"role": "assistant", "tool_calls": [o_call("")]}], "Missing required parameter"),
            ([O_USER, {"role": "assistant", "tool_calls": [o_call("a"), o_call("a")]}], "Duplicate value for 'id'"),
            ([O_USER, {"role": "assistant", "tool_calls": [o_call("x" * 41)]}], "string too long"),
            ([O_USER, {"role": "assistant", "tool_calls": [o_call("a", type="custom")]}], "of type 'function'"),
            (
                [O_USER, {"role": "assistant", "tool_calls": [o_call("a", function={"name": "f", "arguments": {}})]}],
                "expected a string",
            ),
            (
                [O_USER, {"role": "assistant", "tool_calls": [o_call("a", function={"name": "", "arguments": "{}"})]}],
                "function.name",
            ),
            ([{"role": "user", "content": ""}], CONTENT),
            ([{"role": "user"}], CONTENT),
            ([{"role": "user", "content": [5]}], CONTENT),
            ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
            (["text"], "expected an object"),
        ],
    )
    def test_messages(self, messages, message):
        assert message in (openai(*messages) or "accepted")


def a_call(own: str, **changes) -> dict:
    return {"type": "tool_use", "id": own, "name": "f", "input": {}} | changes


def a_result(own: str, **changes) -> dict:
    return {"type": "tool_result", "tool_use_id": own, "content": "r"} | changes


def user(*blocks) -> dict:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks) -> dict:
    return {"role": "assistant", "content": list(blocks)}


TEXT = {"type": "text", "text": "x"}
A_TOOL = {"name": "f", "input_schema": {"type": "object"}}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 9,
    "messages": [user(TEXT), assistant(TEXT, a_call("a"), a_call("b")), user(a_result("b"), a_result("a"), TEXT)],
    "tools": [A_TOOL],
}


def anthropic(*messages, **changes) -> str | None:
    body = copy.deepcopy(ANTHROPIC)
    if messages:
        body["messages"] = list(messages)
    body |= changes
    return check_anthropic.check({key: value for key, value in body.items() if value is not ...}, HEADERS)


class TestAnthropic:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"system": "s", "stream": True, "tool_choice": {"type": "none"}, "temperature": 1},
            {"system": [TEXT], "tool_choice": {"type": "tool", "name": "f"}},
            {"messages": [{"role": "user", "content": "q"}], "tools": ...},
            {"messages": [user(TEXT), assistant(TEXT)]},
            {"messages": [user(TEXT), assistant(a_call("a")), user(a_result("a", content="", is_error=False))]},
            {"tools": [A_TOOL, {"type": "web_search_20250305", "name": "web_search"}]},
            {
                "messages": [
                    user(TEXT),
                    assistant(
                        {"type": "thinking", "thinking": "t", "signature": "s"},
                        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                    ),
                ]
            },
        ],
    )
    def test_a_valid_request(self, changes):
        assert anthropic(**changes) is None

    def test_the_version_header_is_required(self):
        assert check_anthropic.check(ANTHROPIC, {}) == "anthropic-version: header is required"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"model": ...}, "model: Field required"),
            ({"max_tokens": ...}, "max_tokens: Field required"),
            ({"max_tokens": 0}, "max_tokens: Input should be"),
            ({"max_tokens": True}, "max_tokens: Input should be"),
            ({"messages": ...}, "messages: Field required"),
            ({"messages": []}, "at least one message is required"),
            ({"n": 1}, "n: Extra inputs are not permitted"),
            ({"stream": 1}, "stream: Input should be a valid boolean"),
            ({"system": ""}, "text content blocks must be non-empty"),
            ({"system": [{"type": "text", "text": " "}]}, "must contain non-whitespace text"),
            ({"tools": ...}, "must define tools"),
            ({"tools": []}, "must define tools"),
            ({"tools": 5}, "tools: Input should be a valid array"),
            ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.custom.name"),
            ({"tools": [A_TOOL, A_TOOL]}, "Tool names must be unique"),
            ({"tools": [{"name": "f"}]}, "input_schema.type"),
            (
                {"tools": [A_TOOL, {"name": "g", "input_schema": {"type": "string"}}]},
                "tools.1.custom.input_schema.type",
            ),
            ({"tool_choice": "auto"}, "tool_choice: Input tag"),
            ({"tool_choice": {"type": "tool", "name": "g"}}, "Tool 'g' not found"),
            ({"messages": [user(TEXT)], "tools": ..., "tool_choice": {"type": "auto"}}, "while providing tools"),
        ],
    )
    def test_parameters(self, changes, message):
        assert message in (anthropic(**changes) or "accepted")

    @pytest.mark.parametrize(
        ("messages", "message"),
        [
            ([assistant(TEXT)], 'first message must use the "user" role'),
            ([user(TEXT), user(TEXT)], "roles must alternate"),
            ([user(TEXT), assistant(TEXT), assistant(TEXT)], "roles must alternate"),
            ([{"role": "system", "content": "x"}], "Input should be 'user' or 'assistant'"),
            ([5], "Input should be 'user' or 'assistant'"),
            ([user()], "must have non-empty content"),
            ([{"role": "user", "content": 5}], "must have non-empty content"),
            ([{"role": "user", "content": ""}], "must be non-empty"),
            ([user({"type": "text", "text": " "})], "must contain non-whitespace text"),
            ([user({"type": "text"})], "text: Field required"),
            ([user({"text": "x"})], "type: Field required"),
            ([user("x")], "type: Field required"),
            ([user(TEXT), assistant(a_call("a"))], "without `tool_result` blocks immediately after: a"),
            ([user(TEXT), assistant(a_call("a")), user(TEXT)], "without `tool_result` blocks immediately after: a"),
            ([user(TEXT), assistant(a_call("a"), a_call("b")), user(a_result("a"))], "immediately after: b"),
            ([user(a_result("a"))], "unexpected `tool_use_id`"),
            ([user(TEXT), assistant(a_call("a")), user(a_result("a"), a_result("x"))], "unexpected `tool_use_id`"),
            ([user(TEXT), assistant(a_call("a")), user(a_result("a"), a_result("a"))], "must have a single result"),
            ([user(TEXT), assistant(a_call("a"), a_call("a")), user(a_result("a"))], "`tool_use` ids must be unique"),
            (
                [user(TEXT), *[assistant(a_call("a")), user(a_result("a"))] * 2],
                "`tool_use` ids must be unique",
            ),
            ([user(TEXT), assistant(a_call("a")), user(TEXT, a_result("a"))], "must come first"),
            ([user(a_call("a"))], "can only be in `assistant` messages"),
            ([user(TEXT), assistant(a_result("a"))], "can only be in `user` messages"),
            ([user(TEXT), assistant(a_call("a.b")), user(a_result("a.b"))], "tool_use.id"),
            ([user(TEXT), assistant(a_call("a", name="x y")), user(a_result("a"))], "tool_use.name"),
            ([user(TEXT), assistant(a_call("a", input="{}")), user(a_result("a"))], "tool_use.input"),
            ([user(TEXT), assistant(a_call("a")), user(a_result("a", content=5))], "tool_result.content"),
            ([user(TEXT), assistant(a_call("a")), user(a_result("a", content="", is_error=True))], "cannot be empty"),
            ([user(TEXT), assistant({"type": "thinking", "thinking": "t"})], "signature: Field required"),
            ([user(TEXT), assistant({"type": "text", "text": "x "})], "trailing whitespace"),
        ],
    )
    def test_messages(self, messages, message):
        assert message in (anthropic(*messages) or "accepted")


@pytest.mark.parametrize("body", [None, [], "text", 5, True])
def test_a_body_that_is_no_object(body):
    assert check_openai.check(body) is not None
    assert check_anthropic.check(body, HEADERS) is not None


WORDS = """models messages role content tool_calls id type function name arguments tool_call_id tools tool_choice
input tool_use_id input_schema text system max_tokens stream parameters is_error"""
KEYS = st.sampled_from(WORDS.split())
VALUES = "m user assistant tool system a text tool_use tool_result function none"
SCALARS = st.sampled_from([*VALUES.split(), "", 0, 5, None, True])
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner), max_leaves=30)


@given(st.dictionaries(KEYS, JSON))
def test_any_body_is_judged_without_an_error(body):
    for full in (body, {"model": "m", "max_tokens": 5, **body}):
        problem = check_openai.check(full)
        assert problem is None or problem.message
        assert check_anthropic.check(full, HEADERS) != ""
