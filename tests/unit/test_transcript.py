"""The fold from events and decisions to a conversation, one protocol case after another."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from spent import spent

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Message, ToolCall
from engine.core.state import Outcome
from engine.core.transcript import ANSWERED_BY_HOST, OUTPUT_ACCEPTED, Entry, Transcript, fold, messages, problems
from engine.core.vocabulary import REFUSALS

Pair = tuple[e.AnyEvent, d.AnyDecision]

STARTED: Pair = (e.RunStarted(0, "r", refs=("system", "question")), d.Continue())
ASKED: Pair = (e.CallRequested(1, "1"), d.Call(1, "1", 1, "main", 99))
OUTCOME = Outcome("completed")
GIVEN = [Entry("given", "system"), Entry("given", "question")]


def proposed(*ids: str, kind: str = "function") -> tuple[e.Proposed, ...]:
    return tuple(e.Proposed(id, f"tool {id}", kind=kind) for id in ids)  # type: ignore[arg-type]


def replied(*ids: str, ref: str = "reply", text: bool = False, call: str = "1") -> e.ModelReplied:
    return e.ModelReplied(2, call, finish="tool_calls" if ids else "stop", text=text, calls=proposed(*ids), ref=ref)


def execute(i: int, id: str) -> d.Execute:
    return d.Execute(2, i, id, 1, 99)


def refuse(i: int, id: str, text: str = "no", ref: str = "") -> d.Reply:
    return d.Reply(i, id, text, "denied", ref)


def ended(id: str, status: str = "ok", ref: str | None = None) -> e.ToolEnded:
    return e.ToolEnded(3, id, status=status, ref=f"result {id}" if ref is None else ref)  # type: ignore[arg-type]


def end(*close: d.Reply) -> d.End:
    return d.End(9, OUTCOME, close)


def said(*pairs: Pair) -> list[Entry]:
    """What a run adds to its opening messages."""
    entries = fold((STARTED, ASKED, *pairs)).entries()
    assert entries[:2] == GIVEN
    return entries[2:]


def result(position: int, ref: str = "", text: str = "", *, error: bool = False) -> Entry:
    return Entry("result", ref, text, position, error)


REPLY = Entry("reply", "reply")


def test_an_answer() -> None:
    assert said((replied(text=True), end())) == [REPLY]


def test_results_come_in_the_models_order_when_the_round_is_complete() -> None:
    start: list[Pair] = [
        (replied("1.0", "1.1", "1.2"), d.RunTools(2, 1, (execute(0, "1.0"), refuse(1, "1.1"), execute(2, "1.2")))),
        (e.ToolRequested(3, "1.0"), execute(0, "1.0")),
        (e.ToolRequested(3, "1.2"), execute(2, "1.2")),
        (ended("1.2"), d.Wait(99)),
    ]
    assert said(*start) == [REPLY]
    assert fold((STARTED, ASKED, *start)).open == ("1.0",)
    assert said(*start, (ended("1.0", "failed"), d.Continue())) == [
        REPLY,
        result(0, "result 1.0", error=True),
        result(1, text="no", error=True),
        result(2, "result 1.2"),
    ]


def test_a_round_of_which_nothing_runs_is_complete_at_once() -> None:
    run = d.RunTools(2, 1, (refuse(0, "1.0"), refuse(1, "1.1", "", "why")), complete=True)
    assert said((replied("1.0", "1.1"), run)) == [REPLY, result(0, text="no", error=True), result(1, "why", error=True)]


def test_a_refusal_just_before_the_start_is_the_result() -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    pairs: list[Pair] = [(replied("1.0"), run), (e.ToolRequested(3, "1.0"), refuse(0, "1.0", "too late"))]
    assert said(*pairs) == [REPLY, result(0, text="too late", error=True)]
    assert said(*pairs, pairs[-1]) == said(*pairs)


@pytest.mark.parametrize("status", ["ok", "failed", "timed_out", "cancelled", "unknown"])
def test_a_result_without_content_says_what_happened(status: str) -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    (entry,) = said((replied("1.0"), run), (ended("1.0", status, ""), d.Continue()))[1:]
    assert entry.is_error == (status != "ok")
    assert (entry.text == "") == (status == "ok")


def test_a_tool_that_is_started_again_has_no_result_yet() -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    pairs: list[Pair] = [(replied("1.0"), run), (ended("1.0", "failed"), d.Execute(3, 0, "1.0", 2, 99))]
    assert said(*pairs) == [REPLY]
    assert said(*pairs, (e.ToolEnded(3, "1.0", 2, ref="second"), d.Continue())) == [REPLY, result(0, "second")]


def test_only_the_first_result_counts() -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"), execute(1, "1.1")))
    pairs: list[Pair] = [
        (replied("1.0", "1.1"), run),
        (ended("1.0"), d.Wait(99)),
        (ended("1.0", "failed", "again"), d.Wait(99)),
        (ended("1.1"), d.Continue()),
        (ended("1.1", "failed", "late"), d.Wait(99)),
    ]
    assert said(*pairs) == [REPLY, result(0, "result 1.0"), result(1, "result 1.1")]


def test_a_disobedient_final_call_is_closed() -> None:
    close = (refuse(0, "1.0", "final"), refuse(1, "1.1", "final"))
    assert said((replied("1.0", "1.1", text=True), end(*close))) == [
        REPLY,
        result(0, text="final", error=True),
        result(1, text="final", error=True),
    ]


def test_a_stop_closes_what_never_started_and_waits_for_what_did() -> None:
    pairs: list[Pair] = [
        (replied("1.0", "1.1"), d.RunTools(2, 1, (execute(0, "1.0"), execute(1, "1.1")))),
        (e.ToolRequested(3, "1.0"), execute(0, "1.0")),
        (e.Cancelled(4), d.Stop(3, 99, cancel=("1.0",), close=(refuse(1, "1.1", "stopped"),))),
    ]
    closed = result(1, text="stopped", error=True)
    assert said(*pairs, (ended("1.0", "cancelled"), end())) == [REPLY, result(0, "result 1.0", error=True), closed]
    tick: Pair = (e.Tick(99), end(refuse(0, "1.0", REFUSALS["cancelled"])))
    assert said(*pairs, tick) == [REPLY, result(0, text=REFUSALS["cancelled"], error=True), closed]


def test_a_reply_to_a_cancelled_call_is_not_part_of_the_conversation() -> None:
    stop: Pair = (e.Cancelled(2), d.Stop(2, 99, cancel_call="1"))
    assert said(stop, (replied("1.0", text=True), end())) == []


def test_failed_attempts_and_empty_replies_leave_nothing() -> None:
    retry = d.Retry(2, "1", 2, "main", 9)
    again: Pair = (e.RetryDue(9, "1"), d.Call(3, "1", 2, "main", 99))
    assert said((e.ModelFailed(2, "1", reason="network", ref="partial"), retry), again) == []
    assert said((replied(), retry), again, (replied(text=True, ref="second"), end())) == [Entry("reply", "second")]
    assert said((replied(), end())) == []
    cut = e.ModelReplied(2, "1", finish="length", calls=proposed("1.0", kind="hosted"), ref="cut")
    assert said((cut, d.Continue())) == []


def test_a_late_reply_of_an_earlier_attempt_is_not_part_of_the_conversation() -> None:
    late: Pair = (replied(text=True, ref="late"), d.Wait(99))
    assert said(late, (e.ModelFailed(3, "1", 2), d.Continue())) == []


def test_a_fallback_replaces_the_reply_it_was_for() -> None:
    other: Pair = (replied(text=True), d.Call(2, "2", 1, "other", 99))
    assert said(other, (replied(text=True, ref="other", call="2"), end())) == [Entry("reply", "other")]


def test_a_pause_stays_in_the_conversation() -> None:
    pause = e.ModelReplied(2, "1", finish="pause", calls=proposed("1.0", kind="hosted"), ref="paused")
    retry: Pair = (pause, d.Retry(2, "1", 2, "main", 2))
    assert said(retry, (replied(text=True, ref="rest"), end())) == [Entry("reply", "paused"), Entry("reply", "rest")]


def test_a_reply_waits_for_the_hosts_function() -> None:
    resolve: Pair = (replied("1.0"), d.Resolve(2, "refusal", "tool_iterations", 5, 5, 99))
    late: Pair = (replied(text=True, ref="late"), d.Wait(99))
    run = d.RunTools(3, 5, (refuse(0, "1.0", "", "why"),), complete=True)
    assert said(resolve) == []
    assert said(resolve, (e.Tick(3), d.Wait(99)), late, (e.Resolved(4, "refusal"), run)) == [
        REPLY,
        result(0, "why", error=True),
    ]
    assert said(resolve, (e.Cancelled(4), end(refuse(0, "1.0")))) == [REPLY, result(0, text="no", error=True)]


def test_hosted_calls_take_no_result_and_answers_get_one() -> None:
    calls = (*proposed("1.0", kind="hosted"), *proposed("1.1"), *proposed("1.2", kind="output"))
    reply = e.ModelReplied(2, "1", finish="tool_calls", calls=calls, ref="reply")
    assert said((reply, end(refuse(0, "1.1")))) == [
        REPLY,
        result(1, text="no", error=True),
        result(2, text=OUTPUT_ACCEPTED),
    ]
    only = e.ModelReplied(2, "1", finish="tool_calls", calls=proposed("1.0", kind="hosted"), ref="reply")
    assert said((only, d.Continue())) == [REPLY]


def test_messages_the_host_adds_come_after_the_results_and_once() -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    asked: Pair = (e.CallRequested(5, "2", refs=("added",)), d.Call(3, "2", 1, "main", 99))
    pairs: list[Pair] = [(replied("1.0"), run), (ended("1.0"), d.Continue()), asked, asked]
    assert said(*pairs) == [REPLY, result(0, "result 1.0"), Entry("given", "added")]


def test_calls_that_the_host_answered_by_itself_have_a_result() -> None:
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    asked: Pair = (e.CallRequested(5, "2", answered=("1.0",), refs=("added",)), d.Call(3, "2", 1, "main", 99))
    assert said((replied("1.0"), run), asked) == [REPLY, result(0, text=ANSWERED_BY_HOST), Entry("given", "added")]


def test_illegal_events_and_events_after_the_end_add_nothing() -> None:
    illegal: Pair = (replied("1.0"), d.Illegal("nobody asked"))
    assert said(illegal, (replied(text=True), end())) == [REPLY]
    after: list[Pair] = [
        (e.CallRequested(9, "2", refs=("more",)), end()),
        (replied(text=True), d.Wait(99)),
        STARTED,
    ]
    assert said((replied(text=True), end()), *after) == [REPLY]


def test_versions_are_values_and_a_fork_leaves_the_other_alone() -> None:
    start = fold((STARTED, ASKED))
    one = start.apply(replied(text=True, ref="one"), end())
    other = start.apply(replied(text=True, ref="other"), end())
    again = start.apply(replied(text=True, ref="again"), end())
    assert [len(t) for t in (start, one, other, again)] == [2, 3, 3, 3]
    assert [t.entries(2)[0].ref for t in (one, other, again)] == ["one", "other", "again"]
    assert start.entries(2) == []
    assert (start.ended, one.ended) == (False, True)


def test_a_huge_round_takes_time_in_proportion() -> None:
    ids = [f"1.{i}" for i in range(100_000)]
    refusals = tuple(refuse(i, id) for i, id in enumerate(ids))
    entries: list[object] = []
    took = spent(lambda: entries.extend(said((replied(*ids), d.RunTools(2, 1, refusals, complete=True)))))
    assert len(entries) == 100_001
    assert took < 60, "seconds; in proportion to the square it is hours"


# Messages.


def conversation() -> tuple[dict[str, Message], list[Pair]]:
    contents = {
        "system": Message("system", "Be brief."),
        "question": Message("user", "Weather?"),
        "reply": Message("assistant", tool_calls=(ToolCall("call_a", "weather"), ToolCall("call_b", "time"))),
        "result 1.0": Message("tool", "sunny", tool_call_id="whatever"),
        "answer": Message("assistant", "Sunny."),
        "why": Message("user", "Not now."),
    }
    run = d.RunTools(2, 1, (execute(0, "1.0"), refuse(1, "1.1", "", "why")))
    return contents, [
        STARTED,
        ASKED,
        (replied("1.0", "1.1"), run),
        (ended("1.0"), d.Continue()),
        (e.CallRequested(4, "2"), d.Call(3, "2", 1, "main", 99)),
        (replied(text=True, ref="answer", call="2"), end()),
    ]


def test_messages_carry_the_providers_ids() -> None:
    contents, pairs = conversation()
    made = messages(fold(pairs).entries(), contents.__getitem__)
    assert made == [
        contents["system"],
        contents["question"],
        contents["reply"],
        Message("tool", "sunny", tool_call_id="call_a"),
        Message("tool", "Not now.", tool_call_id="call_b", is_error=True),
        contents["answer"],
    ]
    assert problems(made) == []


def test_messages_can_be_made_bit_by_bit() -> None:
    contents, pairs = conversation()
    made: list[Message] = []
    transcript = Transcript()
    for pair in pairs:
        transcript = transcript.apply(*pair)
        made += messages(transcript.entries(len(made)), contents.__getitem__, made)
    assert made == messages(fold(pairs).entries(), contents.__getitem__)


def test_a_reply_that_lacks_the_call_of_a_result_is_refused() -> None:
    contents, pairs = conversation()
    contents["reply"] = Message("assistant", "no calls")
    with pytest.raises(ValueError, match="has no such call"):
        messages(fold(pairs).entries(), contents.__getitem__)


# What providers refuse.

USER = Message("user", "hello")
CALLS = Message("assistant", tool_calls=(ToolCall("a", "t"), ToolCall("b", "t")))
A, B = (Message("tool", "r", tool_call_id=id) for id in "ab")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((USER, CALLS, A, B), []),
        ((USER, CALLS, B, A, USER), []),
        ((USER, CALLS, A), ["the end: no result yet for the call 'b'"]),
        (
            (USER, CALLS, A, USER, B),
            ["message 4: no result yet for the call 'b'", "message 5: a result for 'b', which"],
        ),
        ((USER, CALLS, A, A, B), ["message 4: a second result for the call 'a'"]),
        ((USER, A), ["message 2: a result for 'a', which no call right before it has"]),
        ((USER, Message("assistant")), ["message 2: the assistant message is empty"]),
        ((Message("user"),), ["message 1: the user message is empty"]),
        ((USER, Message("assistant", opaque={"thinking": 1})), []),
        ((Message("user", "x", tool_calls=(ToolCall("a", "t"),)),), ["message 1: the user message has calls"]),
        ((Message("assistant", tool_calls=(ToolCall("a", "t"),) * 2), A), ["message 1: 2 calls have the id 'a'"]),
        ((Message("assistant", tool_calls=(ToolCall("a", ""),)), A), ["message 1: the call 'a' names no tool"]),
        ((Message("assistant", tool_calls=(ToolCall("h", "web", kind="hosted"),)),), []),
        (
            (Message("assistant", tool_calls=(ToolCall("", "t"),)), Message("tool", "r")),
            ["message 1: a call has no id"],
        ),
    ],
)
def test_problems(given: Sequence[Message], expected: list[str]) -> None:
    found = problems(given)
    assert len(found) == len(expected)
    assert all(f.startswith(start) for f, start in zip(found, expected, strict=True)), found


def test_the_late_end_of_an_attempt_that_was_given_up_is_no_result() -> None:
    again = (e.ToolRequested(3, "1.0"), d.Execute(2, 0, "1.0", 2, 99))
    late = (e.ToolEnded(3, "1.0", 1, "failed", ref="late"), d.Wait(9))
    now = (e.ToolEnded(4, "1.0", 2, ref="now"), d.Continue())
    run = d.RunTools(2, 1, (execute(0, "1.0"),))
    first = (e.ToolRequested(3, "1.0"), execute(0, "1.0"))
    assert said((replied("1.0"), run), first, again, late, now) == [REPLY, result(0, "now")]


def test_results_that_come_before_their_reply_are_kept_for_it() -> None:
    asked = (e.ToolRequested(3, "1.1"), execute(1, "1.1"))
    refused = (e.ToolRequested(3, "1.0"), refuse(0, "1.0"))
    done = (ended("1.1"), d.Continue())
    merged = d.RunTools(2, 1, (refuse(0, "1.0"), execute(1, "1.1")), complete=True)
    assert said(asked, refused, done, (replied("1.0", "1.1"), merged)) == [
        REPLY,
        result(0, text="no", error=True),
        result(1, "result 1.1"),
    ]


def test_results_whose_reply_never_came_are_those_of_no_other() -> None:
    asked = (e.ToolRequested(3, "x"), execute(0, "x"))
    next_call = (e.CallRequested(4, "2"), d.Call(3, "2", 1, "main", 99))
    merged = (replied("x", call="2"), d.RunTools(4, 2, (execute(0, "x"),)))
    assert said(asked, (ended("x"), d.Continue()), next_call, merged) == [REPLY]
