"""A failed attempt that is tried again, in the generated step and by the interpreter, at the edges of the ordinary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from engine.core import decisions, hot_path
from engine.core.decisions import Call, Retry
from engine.core.events import CallRequested, ModelFailed, ModelReplied, PoolsSeen, RetryDue, RunStarted
from engine.core.ladders import Fallback, Finalize
from engine.core.ladders import Retry as RetryStep
from engine.core.messages import Usage
from engine.core.policy import FailureRule, Limit, Policy, Price
from engine.core.state import ClientInfo, Pools, State
from engine.core.step import Compiled, compile, replay

FINALIZE = (Finalize(),)
STEP = RetryStep(times=3, least=100, most=1_000, jitter=True)


def on(*reasons: str, then: tuple[Any, ...] = (STEP, *FINALIZE)) -> FailureRule:
    return FailureRule(reasons=reasons, then=then)


POLICIES = {
    "one ladder": Policy(name="p", failures=(on("rate_limit"),)),
    "two ladders": Policy(
        name="p", failures=(on("rate_limit", then=(STEP,)), on("*", then=(RetryStep(times=1, jitter=False),)))
    ),
    "attempts": Policy(
        name="p", limits=(Limit(resource="llm_attempts", max=3, then=FINALIZE),), failures=(on("rate_limit"),)
    ),
    "wall": Policy(
        name="p",
        limits=(Limit(resource="wall", max=1_000, reserve=100, then=FINALIZE),),
        failures=(on("rate_limit", "timeout"),),
    ),
    "tokens and cost": Policy(
        name="p",
        limits=(
            Limit(resource="tokens", max=1_000, reserve=100, then=FINALIZE),
            Limit(resource="cost", max=5_000),
        ),
        prices=(Price(model="m", input=2_000_000, output=8_000_000),),
        failures=(on("rate_limit", then=(STEP, Fallback(clients=("spare",)))),),
    ),
    "a fallback first": Policy(name="p", failures=(on("rate_limit", then=(Fallback(clients=("spare",)), STEP)),)),
}


@cache
def both(policy: Policy) -> tuple[Compiled, Compiled]:
    return compile(policy), compile(policy, reference=True)


def agree(policy: Policy, events: Iterable[Any]) -> list[Any]:
    """The decisions of both, which are the same, and so are the states."""
    generated, reference = both(policy)
    state, _ = reference.step(reference.initial, RunStarted(0, "r", clients=(ClientInfo("spare", "m"),)))
    decided = []
    for event in events:
        expected = reference.step(state, event)
        assert generated.step(state, event) == expected
        state = expected[0]
        decided.append(expected[1])
    return decided


def failing(at: int, *changed: dict[str, Any], size: int | None = 10) -> list[Any]:
    """A call whose attempts fail one after the other, each with these changes, and its answer."""
    events: list[Any] = [CallRequested(at, "1", "main", "m", size, 50)]
    for attempt, changes in enumerate(changed, 1):
        failed = structs.replace(ModelFailed(at + 1, "1", attempt, "rate_limit", jitter=500), **changes)
        at = failed.at + 200 * attempt
        events += [failed, RetryDue(failed.at + 1, "1"), RetryDue(at, "1")]
    return [*events, ModelReplied(at + 1, "1", len(changed) + 1, "stop", True, usage=Usage(5, 5))]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"reason": "timeout"},
        {"reason": "auth"},
        {"reason": "host"},
        {"reason": "nobody knows it"},
        {"retry_after": 300},
        {"retry_after": 10**9},
        {"jitter": 0},
        {"partial": "held"},
        {"partial": "delivered"},
        {"usage": Usage(7, 3)},
        {"usage": Usage(7, 3), "estimated": True},
        {"call": "2"},
        {"attempt": 9},
        {"at": 0},
    ],
)
def test_failures_out_of_the_ordinary(name: str, changes: dict[str, Any]) -> None:
    agree(POLICIES[name], failing(10, changes, {}, {}, {}))
    agree(POLICIES[name], failing(10, {}, changes, {}))


@pytest.mark.parametrize("at", [*range(640, 660), *range(745, 755), *range(840, 860), *range(895, 905), 999, 1000])
def test_waits_that_end_around_the_deadline(at: int) -> None:
    for reason in ("rate_limit", "timeout", "aborted"):
        agree(POLICIES["wall"], failing(at, {"reason": reason}, {"reason": reason}))


@pytest.mark.parametrize("size", [None, 0, 889, 890, 891, 10**6])
def test_requests_that_hardly_fit_are_tried_again(size: int | None) -> None:
    agree(POLICIES["tokens and cost"], failing(10, {}, {}, size=size))


def test_a_ladder_is_climbed_to_its_end() -> None:
    decided = agree(POLICIES["one ladder"], failing(10, {}, {}, {}, {}))
    assert [type(one) for one in decided[:6]] == [Call, Retry, Retry, Call, Retry, Retry]
    agree(POLICIES["attempts"], failing(10, {}, {}, {}))


def test_the_ledger_of_a_tree_is_looked_at_by_the_handlers() -> None:
    seen = PoolsSeen(12, Pools(deadline=300))
    call, failed, early, due, *_ = failing(10, {})
    agree(POLICIES["one ladder"], [call, seen, failed, early, due])
    agree(POLICIES["one ladder"], [call, failed, early, structs.replace(seen, at=due.at), due])


@pytest.mark.parametrize("name", ["one ladder", "two ladders", "wall", "tokens and cost"])
def test_an_ordinary_failure_needs_no_handler(name: str) -> None:
    compiled = compile(POLICIES[name])
    state = replay(compiled, [RunStarted(0, "r")])

    def refused(state: State, event: Any) -> Any:
        raise AssertionError(f"{event} went to the handlers")

    step = hot_path.load(compiled.core, hot_path.source(compiled.core), refused)
    decided: list[decisions.AnyDecision] = []
    call, failed, _, due, *_ = failing(10, {})
    for event in (call, failed, due):
        state, decision = step(state, event)
        decided.append(decision)
    assert [type(one) for one in decided] == [Call, Retry, Call]


def test_a_ladder_that_begins_otherwise_has_no_code_of_its_own() -> None:
    assert "kind is ModelFailed" not in hot_path.source(compile(POLICIES["a fallback first"]).core)
