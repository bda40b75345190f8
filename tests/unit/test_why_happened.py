"""Events and decisions in the words of a replay: none is without, and those about agents say which and why."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.state import LimitHit, Outcome, Pools, Refusal, Used
from policy_lang.why.happened import decision_words, event_words, rules_of

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


def test_a_round_by_what_becomes_of_its_calls() -> None:
    run, ask = d.Execute(1, 0, "1.0", 1, 9), d.Ask(1, 1, "1.1", 9, "p.policy:4")
    away = d.Ask(1, 2, "1.2", 9, "p.policy:5", external=True)
    denied = d.Reply(3, "1.3", "No.", "denied", because="p.policy:6")
    words = "run 1 tool, ask a person about 1.1, wait for the result of 1.2, refuse 1.3 (denied)"
    assert decision_words(d.RunTools(1, 1, (run, ask, away, denied)), 0) == words
    assert decision_words(d.RunTools(1, 1, (denied,), True), 0) == "run no tool, refuse 1.3 (denied)"
    assert rules_of(d.RunTools(1, 1, (run, ask, denied), because="default: execute")) == ["p.policy:4", "p.policy:6"]
    assert rules_of(d.RunTools(1, 1, (run,), because="default: execute")) == ["default: execute"]
    assert rules_of(d.Wait(5)) == []


@pytest.mark.parametrize(
    ("resource", "used", "maximum", "words"),
    [
        ("tokens", 41_000, 50_000, "41,000 of 50,000 used"),
        ("cost", 2_500_000, 3_000_000, "$2.50 of $3 used"),
        ("wall", 300_000, 300_000, "5m of 5m used"),
    ],
)
def test_quantities_in_their_units(resource: str, used: int, maximum: int, words: str) -> None:
    outcome = Outcome("incomplete", resource, limit=LimitHit(resource, "run", "r", used, maximum))
    assert decision_words(d.End(1, outcome), 0) == f"end the run: incomplete, {resource} ({words})"
