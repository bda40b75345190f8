"""What the views of ``policy run`` say of failures and people, and whose words they show."""

import io

import pytest

from engine.core.decisions import Note
from engine.run import streaming as s
from policy_lang.cli.run_view import LiveView, PlainView, retrying, waiting


def lines(*events):
    out = io.StringIO()
    view = PlainView(out)
    for event in events:
        view.show(event)
    return out.getvalue().splitlines()


RETRY = s.RetryPlanned("1", 3, 5_000, 3_200, "rate_limit", 2, 3, "p.policy:4")


def test_a_retry_says_how_long_which_of_how_many_and_why():
    assert lines(RETRY) == ["call 1 retrying in 4s (2 of 3): rate_limit"]


def test_a_call_that_goes_on_after_a_pause_is_no_retry():
    assert lines(s.RetryPlanned("1", 2, 0)) == ["call 1 goes on (attempt 2)"]


@pytest.mark.parametrize(
    ("ms", "said"), [(0, "0s"), (40, "40ms"), (999, "999ms"), (1_000, "1s"), (1_001, "2s"), (90_000, "1m30s")]
)
def test_a_wait_is_told_in_whole_seconds(ms, said):
    assert waiting(ms) == said


def test_it_counts_down():
    assert [retrying(RETRY, left) for left in (3_200, 1_100, 0)] == [
        "retrying in 4s (2 of 3): rate_limit",
        "retrying in 2s (2 of 3): rate_limit",
        "retrying in 0s (2 of 3): rate_limit",
    ]


def test_a_tool_that_is_tried_again():
    event = s.ToolRetryPlanned("1.0", "flaky", 2, 9_000, 2_000, "timed_out", "too\x1b slow", "p.policy:9")
    assert lines(event) == ["tool 1.0 flaky timed out: too� slow; retrying in 2s (attempt 2)"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("granted", "allowed"),
        ("refused", "not allowed"),
        ("expired", "not allowed in time"),
        ("nobody", "not allowed: nobody can be asked"),
    ],
)
def test_people(answer, said):
    asked = s.ApprovalAsked("1.0", "send", '{"to": "Ann"}', 0, "p.policy:7")
    assert lines(asked, s.ApprovalAnswered("1.0", "send", answer)) == [
        'tool 1.0 send {"to": "Ann"} waits for a person  [p.policy:7]',
        f"tool 1.0 send {said}",
    ]


def test_edited_arguments_are_told():
    assert lines(s.ApprovalAnswered("1.0", "send", "granted", '{"to":"Bob"}')) == [
        'tool 1.0 send allowed as {"to":"Bob"}'
    ]


def test_runs_below_are_indented_with_agent_and_place():
    call = s.CallStarted("1", 1, "small", False, "", "")
    ended = s.Noted(Note("child", "order.7.1 ended completed", because="default: child"))
    assert lines(
        s.RunBegan("order.7"),
        call,
        s.Below("order.7.1", "explore", call),
        s.Below("order.7.1.2@3", "review", call),
        s.Below("order.7.1", "explore", s.Budget("llm_calls", "llm_calls", "count", 1, 2)),
        ended,
    ) == [
        "run order.7",
        "call 1 to small",
        "  explore 1: call 1 to small",
        "    review 1.2@3: call 1 to small",
        "child 1 ended completed",
    ]


def test_limits_of_runs_below_are_not_those_of_the_run():
    view = PlainView(io.StringIO())
    view.show(s.Budget("tokens", "tokens", "count", 5, 10))
    view.show(s.Below("r.1", "a", s.Budget("tokens", "tokens", "count", 1, 2)))
    assert [(budget.used, budget.maximum) for budget in view.budgets] == [(5, 10)]


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("kind", [PlainView, LiveView])
def test_nothing_is_told_any_more_where_nobody_reads(kind):
    view = kind(Gone())
    for call in ("1", "2"):
        view.show(s.CallStarted(call, 1, "small", False, "", ""))
    view.show(s.Budget("tokens", "tokens", "count", 5, 10))
    assert [budget.used for budget in view.budgets] == [5]


class TestShownText:
    def shown(self, *events):
        text = s.ShownText()
        for event in events:
            text.show(event)
        return text.text

    def test_pieces_of_one_attempt_belong_together(self):
        assert self.shown(s.TextDelta("1", 1, "a"), s.TextDelta("1", 1, "b")) == "ab"

    @pytest.mark.parametrize("other", [("1", 2), ("2", 1)])
    def test_another_attempt_or_call_begins_anew_whatever_was_missed(self, other):
        assert self.shown(s.TextDelta("1", 1, "a"), s.TextDelta(*other, "b")) == "b"

    def test_a_retraction_takes_its_own_text_only(self):
        assert self.shown(s.TextDelta("1", 1, "a"), s.TextRetracted("1", 1)) == ""
        assert self.shown(s.TextDelta("1", 1, "a"), s.TextDelta("2", 1, "b"), s.TextRetracted("1", 1)) == "b"

    def test_text_that_nobody_takes_back_stays(self):
        assert self.shown(s.TextDelta("1", 1, "a"), s.CallEnded("1", 1, "a")) == "a"


def test_the_live_view_shows_a_wait_and_one_clients_words_at_a_time():
    def panel(view):
        return "".join(str(part) for part in view._panel().renderables[:-1])

    view = LiveView(io.StringIO())
    view.show(s.TextDelta("1", 1, "from main"))
    assert panel(view) == "from main"
    view.show(s.TextRetracted("1", 1))
    assert panel(view) == ""
    view.show(RETRY)
    assert panel(view) == "retrying in 0s (2 of 3): rate_limit"
    view.show(s.CallStarted("2", 1, "cheap", False, "", ""))
    view.show(s.TextDelta("2", 1, "from cheap"))
    assert panel(view) == "from cheap"
