"""Tool call ids on the wire: unique, plain, stable, each result with its own call."""

from hypothesis import given
from hypothesis import strategies as st

from engine.clients.ids import PLAIN_ID, wire_ids
from engine.core.messages import Message, ToolCall


def round_of(*ids: str) -> list[Message]:
    calls = tuple(ToolCall(own, "t") for own in ids)
    return [Message("assistant", tool_calls=calls), *(Message("tool", "r", tool_call_id=own) for own in ids)]


def test_plain_ids_are_sent_as_they_are():
    assert wire_ids(round_of("call_a", "toolu_B-1")) == [("call_a", "toolu_B-1"), ("call_a",), ("toolu_B-1",)]


def test_an_id_that_comes_again_in_a_later_round_gets_another_one():
    ids = wire_ids(round_of("call_0") + round_of("call_0") + round_of("call_0"))

    assert ids == [("call_0",), ("call_0",), ("call_0_2",), ("call_0_2",), ("call_0_3",), ("call_0_3",)]


def test_equal_ids_in_one_message_are_paired_in_order():
    assert wire_ids(round_of("x", "x")) == [("x", "x_2"), ("x",), ("x_2",)]


def test_ids_of_other_characters_and_lengths_are_made_plain_and_stay_distinct():
    first, *_ = wire_ids(round_of("1.0", "1:0", "a" * 90, "ü", ""))

    assert len(set(first)) == 5
    assert all(PLAIN_ID.fullmatch(own) for own in first)


def test_a_result_of_no_call_keeps_its_id_for_the_provider_to_refuse():
    assert wire_ids([Message("tool", "r", tool_call_id="nobody")]) == [("nobody",)]


IDS = st.lists(st.sampled_from(["a", "b", "", "1.0", "x" * 60, "a_2"]), min_size=1, max_size=4)


@given(st.lists(IDS, min_size=1, max_size=6))
def test_every_conversation_gets_unique_plain_ids_and_its_prefix_keeps_them(rounds):
    messages = [m for ids in rounds for m in round_of(*ids)]
    sent = wire_ids(messages)
    calls = [own for m, ids in zip(messages, sent, strict=True) for own in ids if m.role == "assistant"]
    results = [own for m, ids in zip(messages, sent, strict=True) for own in ids if m.role == "tool"]

    assert len(set(calls)) == len(calls)
    assert results == calls
    assert all(PLAIN_ID.fullmatch(own) for own in calls)
    shorter = round_of(*rounds[0])
    assert wire_ids(shorter) == sent[: len(shorter)]
