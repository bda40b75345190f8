"""Events and decisions in the words of a replay: none is without, and those about agents say which and why."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.state import LimitHit, Outcome, Pools, Refusal, Used
from policy_lang.why.happened import decision_words, event_words

FULL = Refusal(LimitHit(resource="children", scope="subtree", owner="r", used=4, maximum=4), "p.policy:9")


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (e.PoolsSeen(1, Pools()), "the tree of agents is looked at"),
        (e.SpawnRequested(1, "c1", "explore"), "child c1 of agent explore is asked for"),
        (e.WakeRequested(1, "c1", "explore"), "child c1 of agent explore is asked for again"),
        (e.ChildEnded(1, "c1", "completed"), "child c1 ends: completed"),
    ],
)
def test_events_of_agents(event: e.AnyEvent, words: str) -> None:
    assert event_words(event) == words


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (d.Spawn(1, "c1", "explore"), "run child c1 of agent explore"),
        (d.Queue("c1"), "let child c1 wait for a slot"),
        (d.Refuse("c1", FULL), "refuse child c1: children (4 of 4 used)"),
        (
            d.End(1, Outcome("incomplete", "tool_calls", limit=FULL.limit)),
            "end the run: incomplete, tool_calls (4 of 4 used)",
        ),
    ],
)
def test_decisions_about_agents(decision: d.AnyDecision, words: str) -> None:
    assert decision_words(decision, 0) == words


SAMPLES: dict[Any, Any] = {
    str: "x",
    int: 1,
    bool: True,
    Usage: Usage(),
    Used: Used(),
    Pools: Pools(),
    Refusal: FULL,
    Outcome: Outcome("completed", "answer"),
}


def made(kind: type[msgspec.Struct]) -> Any:
    """One of its kind, with a sample for every field that must be given."""
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: SAMPLES.get(field.type, ()) for field in fields if field.required})


@pytest.mark.parametrize("kind", get_args(e.AnyEvent))
def test_every_event_has_words(kind: type[msgspec.Struct]) -> None:
    assert event_words(made(kind))


@pytest.mark.parametrize("kind", get_args(d.AnyDecision))
def test_every_decision_has_words(kind: type[msgspec.Struct]) -> None:
    assert decision_words(made(kind), 0)
