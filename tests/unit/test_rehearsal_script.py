"""Scripts: what they may say, and one clear message with the place for each mistake."""

import pytest

from engine.rehearsal import Script, ScriptedCall, ScriptedReply, ScriptedUsage, ScriptError, When
from engine.rehearsal.choose import Chooser
from engine.rehearsal.plan import make_plan
from engine.rehearsal.seen import Seen, see

EVERYTHING = """
about = "every key once"

[[reply]]
text = "Looking."
calls = [
  { tool = "search", args = { q = "a" } },
  { tool = "fetch", args = "no json", id = "dup", count = 3, hosted = true },
]
usage = { input = 100, output = 20, cached = 60, cache_write = 10, reasoning = 5, cumulative = true }
finish = "tool_calls"
times = 2
delay_ms = 1
event_delay_ms = 2
piece = 5
[reply.when]
tools = true
tool = "search"
last = "user"
contains = "x"
results_below = 5
results_at_least = 0
model = "m*"
stream = false
wire = "openai"

[[reply]]
fail = "rate_limit"
code = "c"
message = "slow down"
retry_after = 2
headers = { x-a = "b" }
after = 3

[[reply]]
tool = "search"
args = { q = "b" }
usage = "none"
broken = "cut"
times = "always"
"""


def test_every_key_of_the_format():
    first, second, third = Script.parse(EVERYTHING).replies

    assert first.all_calls == (ScriptedCall("search", {"q": "a"}), ScriptedCall("fetch", "no json", "dup", 3, True))
    assert first.usage == ScriptedUsage(100, 20, 60, 10, 5, True)
    assert first.when == When(True, "search", "user", "x", 5, 0, "m*", False, "openai")
    assert (second.fail, second.retry_after, second.after) == ("rate_limit", 2, 3)
    assert third.all_calls == (ScriptedCall("search", {"q": "b"}),)
    assert (third.usage, third.times) == ("none", "always")


MISTAKES = [
    ("", "s.toml: there is no [[reply]] in it"),
    ("reply = 5", "s.toml: there is no [[reply]] in it"),
    ("reply = [1]", "s.toml: reply 1: is not a table"),
    ("[[replies]]\ntext = 'x'", "s.toml: unknown key `replies`; did you mean `reply`?"),
    ("[[reply]]\ntext = ", "s.toml: not TOML: invalid value (at end of document)"),
    ("[[reply]]\ntext = a b", "s.toml:2:8: not TOML: invalid value"),
    ("[[reply]]\ntext = 'a'\n\n[[reply]]\ntxet = 'b'", "s.toml:4: reply 2: unknown key `txet`; did you mean `text`?"),
    (
        "[[reply]]\ntext = 'a'\nwhen = { tool_results = 3 }",
        "s.toml:1: reply 1: unknown key `tool_results` (known: tools, ",
    ),
    (
        "[[reply]]\ntimes = 2",
        "s.toml:1: reply 1: says nothing; give it one of text, tool, calls, finish, fail, status, broken",
    ),
    ("[[reply]]\ntext = 5", "s.toml:1: reply 1: `text`: expected text, got a whole number"),
    ("[[reply]]\ntext = 'a'\ndelay_ms = 'x'", "s.toml:1: reply 1: `delay_ms`: expected a whole number, got text"),
    (
        "[[reply]]\nfail = 'rate_limits'",
        "s.toml:1: reply 1: `fail` cannot be `rate_limits`; did you mean `rate_limit`? known: `rate_limit`, "
        "`context_exceeded`, `overloaded`, `auth`, `invalid_request`, `content_filter`, `provider`, `timeout`, "
        "`network`, `truncated`",
    ),
    (
        "[[reply]]\nbroken = 'x'",
        "s.toml:1: reply 1: `broken` cannot be `x`; known: `close`, `reset`, `hang`, `cut`, `half_event`, `no_end`, "
        "`invalid_json`, `no_content`, `empty`, `html`",
    ),
    (
        "[[reply]]\ntext = 'a'\nwhen = { last = 'user ' }",
        "s.toml:1: reply 1: `when.last` cannot be `user `; did you mean `user`? known: `system`, `user`, `assistant`, "
        "`tool`",
    ),
    (
        "[[reply]]\ntext = 'a'\ntimes = 'never'",
        "s.toml:1: reply 1: `times` cannot be `never`; known: `always`, a whole number",
    ),
    ("[[reply]]\ntext = 'a'\nusage = 'some'", "s.toml:1: reply 1: `usage` cannot be `some`; known: `none`, a table"),
    ("[[reply]]\ntext = 'a'\ntimes = 0", 's.toml:1: reply 1: `times` must be at least 1, or "always"'),
    ("[[reply]]\ntext = 'a'\ndelay_ms = -1", "s.toml:1: reply 1: a delay cannot be negative"),
    ("[[reply]]\ntext = 'a'\npiece = 0", "s.toml:1: reply 1: `piece` must be at least 1 character"),
    ("[[reply]]\ntext = 'a'\nargs = { q = 1 }", "s.toml:1: reply 1: `args` needs a `tool`"),
    ("[[reply]]\ntool = ''", "s.toml:1: reply 1: a tool needs a name"),
    ("[[reply]]\ncalls = [{ tool = 't', count = 0 }]", "s.toml:1: reply 1: `count` must be 1 to 1,000,000"),
    ("[[reply]]\nfail = 'auth'\nstatus = 401", "s.toml:1: reply 1: give `fail` or `status`, not both"),
    ("[[reply]]\nstatus = 200", "s.toml:1: reply 1: `status` must be 300 to 599"),
    ("[[reply]]\ntext = 'a'\nretry_after = 2", "s.toml:1: reply 1: `retry_after` needs `fail` or `status`"),
    (
        "[[reply]]\ntext = 'a'\nmessage = 'b'",
        "s.toml:1: reply 1: `message` needs `fail` or `status`; an answer is `text`",
    ),
    ("[[reply]]\ntext = 'a'\nafter = 2", "s.toml:1: reply 1: `after` needs `broken`, `fail` or `status`"),
    ("[[reply]]\nfail = 'auth'\nbroken = 'cut'", "s.toml:1: reply 1: it cannot both fail and be broken"),
    ("[[reply]]\ntext = 'a'\nusage = { input = -1 }", "s.toml:1: reply 1: a number of tokens cannot be negative"),
    (
        "[[reply]]\ntext = 'a'\nusage = { input = 5, cached = 6 }",
        "s.toml:1: reply 1: more tokens cached than there are in `input`",
    ),
    (
        "[[reply]]\ntext = 'a'\nheaders = { a = \"b\\nc\" }",
        "s.toml:1: reply 1: a header must be plain text on one line",
    ),
    (
        "[[reply]]\ntext = 'a'\ntimes = 'always'\n[[reply]]\ntext = 'b'",
        "s.toml:4: reply 2: can never be used, because reply 1 answers everything, always",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_said_once_with_its_place(text, message):
    with pytest.raises(ScriptError) as caught:
        Script.parse(text, "s.toml")

    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


class TestFiles:
    def test_a_byte_order_mark_is_no_mistake(self, tmp_path):
        (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbf[[reply]]\ntext = 'x'\n")

        assert Script.load(tmp_path / "s.toml").replies[0].text == "x"

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\xff\xfe\x00", "not a text file in UTF-8"),
            (b"#" * 1_100_000, "larger than 1,048,576 bytes"),
            (b"a = " + b"[" * 100_000, "not TOML"),
        ],
    )
    def test_a_file_that_is_no_script(self, tmp_path, content, message):
        (tmp_path / "s.toml").write_bytes(content)

        with pytest.raises(ScriptError, match=message):
            Script.load(tmp_path / "s.toml")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(ScriptError) as caught:
            Script.load(tmp_path / "none.toml")

        assert str(caught.value) == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"

    def test_a_folder_is_no_file(self, tmp_path):
        with pytest.raises(ScriptError, match="cannot be read"):
            Script.load(tmp_path)


def test_scripts_from_python_take_records_and_dictionaries():
    script = Script.of(ScriptedReply(text="a"), {"tool": "t", "times": "always"})

    assert [reply.text for reply in script.replies] == ["a", None]
    with pytest.raises(ScriptError, match="reply 1: unknown key `txt`"):
        Script.of({"txt": "a"})
    with pytest.raises(ScriptError, match="there are no replies"):
        Script.of()


def seen(**changes) -> Seen:
    tools = [{"function": {"name": "search"}}]
    messages = [{"role": "user", "content": "question"}, {"role": "tool", "content": "result"}]
    return see("openai", {"model": "gpt-x", "messages": messages, "tools": tools, **changes})


class TestChoosing:
    @pytest.mark.parametrize(
        ("when", "holds"),
        [
            (When(), True),
            (When(tools=True), True),
            (When(tools=False), False),
            (When(tool="search"), True),
            (When(tool="fetch"), False),
            (When(last="tool"), True),
            (When(last="user"), False),
            (When(contains="esul"), True),
            (When(contains="question"), False),
            (When(results_below=2), True),
            (When(results_below=1), False),
            (When(results_at_least=1), True),
            (When(results_at_least=2), False),
            (When(model="gpt-*"), True),
            (When(model="claude-*"), False),
            (When(stream=False), True),
            (When(stream=True), False),
            (When(wire="openai"), True),
            (When(wire="anthropic"), False),
            (When(tools=True, last="user"), False),
        ],
    )
    def test_a_reply_answers_when_everything_it_names_holds(self, when, holds):
        chooser = Chooser(Script.of(ScriptedReply(text="a", when=when)))

        assert (chooser.choose(seen()) is not None) == holds

    def test_forbidden_tools_are_not_offered(self):
        assert seen(tool_choice="none").offered == ()
        assert seen(tool_choice="required").forced == "*"

    def test_replies_are_used_in_order_and_one_that_does_not_apply_waits(self):
        chooser = Chooser(
            Script.of(
                {"text": "final", "when": {"tools": False}, "times": "always"},
                {"text": "one"},
                {"text": "two", "times": 2},
                {"text": "rest", "times": "always"},
            )
        )
        without_tools = seen(tools=[])
        order = [chooser.choose(s) for s in (seen(), without_tools, seen(), seen(), without_tools, seen(), seen())]

        assert [chosen[0] for chosen in order if chosen] == [2, 1, 3, 3, 1, 4, 4]

    def test_a_script_that_is_used_up_has_no_answer(self):
        chooser = Chooser(Script.of({"text": "once"}))

        assert chooser.choose(seen()) is not None
        assert chooser.choose(seen()) is None


class TestSeeing:
    def test_both_formats_show_the_same_conversation(self):
        openai = see(
            "openai",
            {
                "model": "m",
                "messages": [
                    {"role": "system", "content": "s"},
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "tool_calls": [{}]},
                    {"role": "tool", "content": "r1"},
                    {"role": "tool", "content": "r2"},
                    {"role": "user", "content": "answer now"},
                ],
            },
        )
        results = [{"type": "tool_result", "content": "r1"}, {"type": "tool_result", "content": "r2"}]
        anthropic = see(
            "anthropic",
            {
                "model": "m",
                "system": "s",
                "messages": [
                    {"role": "user", "content": "q"},
                    {"role": "assistant", "content": [{"type": "tool_use"}]},
                    {"role": "user", "content": [*results, {"type": "text", "text": "answer now"}]},
                ],
            },
        )

        for view in (openai, anthropic):
            assert (view.last, view.last_text, view.results) == ("user", "answer now", 2)

    @pytest.mark.parametrize("body", [{}, {"messages": None}, {"messages": [1, {}], "tools": [None], "tool_choice": 5}])
    @pytest.mark.parametrize("wire", ["openai", "anthropic"])
    def test_a_body_that_is_no_request_is_seen_without_an_error(self, wire, body):
        assert see(wire, body).model == ""


class TestPlans:
    def test_numbers_in_texts_make_repeated_calls_differ(self):
        reply = ScriptedReply(text="{n}.", calls=(ScriptedCall("t", {"q": ["x{n}"]}),))
        plan = make_plan(7, reply, seen())

        assert plan.text == "7."
        assert [(c.id, c.arguments) for c in plan.calls()] == [("call_7_1", '{"q":["x7"]}')]

    def test_ids_may_be_repeated_or_left_out(self):
        reply = ScriptedReply(calls=(ScriptedCall("t", id="a", count=2), ScriptedCall("t", id="")))

        assert [c.id for c in make_plan(1, reply, seen()).calls()] == ["a", "a", None]

    def test_usage_is_computed_from_the_texts_the_same_each_time(self):
        plans = [make_plan(1, ScriptedReply(text="x" * 40), seen()) for _ in range(2)]

        assert plans[0].usage == plans[1].usage
        assert plans[0].usage is not None
        assert plans[0].usage.output == 10
        assert plans[0].usage.input == seen().size > 0

    def test_usage_may_be_left_out_or_given_in_part(self):
        assert make_plan(1, ScriptedReply(text="x", usage="none"), seen()).usage is None
        given = make_plan(1, ScriptedReply(text="x", usage=ScriptedUsage(output=99)), seen()).usage
        assert given is not None
        assert (given.input, given.output) == (seen().size, 99)
