"""What an attempt makes of a reply before the core hears of it: ids of its own, and nothing of the wrong type."""

from __future__ import annotations

import pytest

from engine.core.messages import Message, Reply, ToolCall, Usage
from engine.run.calls import malformed, with_own_ids


def ids(*given: str) -> list[str]:
    message = Message("assistant", tool_calls=tuple(ToolCall(id, "search") for id in given))
    return [call.id for call in with_own_ids(message, 3).tool_calls]


def test_ids_that_differ_are_left_alone() -> None:
    message = Message("assistant", tool_calls=(ToolCall("a", "search"), ToolCall("b", "search")))
    assert with_own_ids(message, 3) is message


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (("", ""), ["call_3_0", "call_3_1"]),
        (("a", "a", "b"), ["a", "call_3_1", "b"]),
        (("a", "", "call_3_1"), ["a", "call_3_1_", "call_3_1"]),
        (("", "call_3_0"), ["call_3_0_", "call_3_0"]),
    ],
)
def test_a_missing_or_repeated_id_is_replaced_by_one_that_nobody_has(given: tuple[str, ...], made: list[str]) -> None:
    assert ids(*given) == made


@pytest.mark.parametrize(
    "reply",
    [
        Reply(Message("assistant", None)),  # type: ignore[arg-type]
        Reply(None),  # type: ignore[arg-type]
        Reply(Message("assistant", tool_calls=(ToolCall(1, "search"),))),  # type: ignore[arg-type]
        Reply(Message("assistant", tool_calls=("search",))),  # type: ignore[arg-type]
        Reply(Message("assistant", tool_calls=(ToolCall("a", "search", kind="other"),))),  # type: ignore[arg-type]
        Reply(Message("assistant", "hi"), "done"),  # type: ignore[arg-type]
        Reply(Message("assistant", "hi"), usage=Usage(1.5, 1)),  # type: ignore[arg-type]
        Reply(Message("assistant", "hi"), usage=Usage(1, -1)),
        Reply(Message("assistant", "hi"), usage=Usage(1, True)),
    ],
)
def test_a_reply_made_by_hand_is_looked_at(reply: Reply) -> None:
    assert malformed(reply)


def test_a_sound_reply_has_nothing_wrong() -> None:
    assert malformed(Reply(Message("assistant", "hi", (ToolCall("a", "search"),)), "tool_calls", Usage(1, 1))) == ""
