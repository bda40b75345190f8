"""The generated step against the interpreter, at the edges of what it calls an ordinary turn."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from engine.core import hot_path
from engine.core.decisions import Call, Execute, RunTools
from engine.core.events import CallRequested, ModelReplied, Proposed, RunStarted, ToolEnded, ToolRequested
from engine.core.messages import Usage
from engine.core.policy import Extend, Finalize, Limit, Policy, Price, Threshold, ToolRule
from engine.core.state import Used
from engine.core.step import Compiled, compile, replay

FINALIZE = (Finalize(),)
PRICE = Price(model="m", input=2_000_000, cached=1_000_000, output=8_000_000)
BEFORE = Used(input_tokens=100, output_tokens=50, cost=70)


def tokens(maximum: int, **parts: Any) -> Limit:
    return Limit(resource="tokens", max=maximum, reserve=100, then=FINALIZE, **parts)


POLICIES = {
    "tokens": Policy(name="p", limits=(tokens(1000),)),
    "tokens per thread": Policy(name="p", limits=(tokens(1150, scope="thread"),)),
    "input": Policy(name="p", limits=(Limit(resource="input_tokens", max=900),)),
    "output": Policy(name="p", limits=(Limit(resource="output_tokens", max=900),)),
    "cost": Policy(name="p", limits=(Limit(resource="cost", max=1800),), prices=(PRICE,)),
    "a cost that is rounded": Policy(
        name="p",
        limits=(Limit(resource="cost", max=10),),
        prices=(Price(model="m", input=1_500_000, output=8_300_000),),
    ),
    "wall": Policy(name="p", limits=(Limit(resource="wall", max=1000, reserve=100, then=FINALIZE),)),
    "two walls": Policy(
        name="p", limits=(Limit(resource="wall", max=900), Limit(resource="wall", scope="run", max=2000))
    ),
    "warn": Policy(
        name="p", limits=(tokens(10_000),), thresholds=(Threshold(percent=9, resource="tokens", action="warn"),)
    ),
    "tell": Policy(
        name="p",
        limits=(tokens(10_000), Limit(resource="llm_calls", max=9)),
        thresholds=(
            Threshold(percent=9, resource="tokens", action="tell", text="{left} left"),
            Threshold(percent=22, resource="llm_calls", action="warn"),
        ),
    ),
    "timeouts": Policy(name="p", limits=(Limit(resource="wall", max=1000),), tools=(ToolRule(glob="s*", timeout=120),)),
    "tool limit": Policy(name="p", tools=(ToolRule(glob="search", limit=1),)),
    "nothing": Policy(name="p"),
}


def turn(n: int, at: int, used: int, tools: int = 1, wanted: int | None = None, size: int | None = None) -> list[Any]:
    """A call, its reply after using ``used`` tokens of each kind, and the tools it asks for."""
    calls = tuple(Proposed(f"{n}.{i}", "search", "{}") for i in range(tools))
    usage = Usage(input=used, output=used, cached=used // 3)
    events: list[Any] = [
        CallRequested(at, str(n), "main", "m", size, wanted),
        ModelReplied(at + 1, str(n), 1, "tool_calls", calls=calls, usage=usage),
    ]
    events += [ToolRequested(at + 2, call.id, "search") for call in calls]
    events += [ToolEnded(at + 3, call.id) for call in calls]
    return events


@cache
def both(policy: Policy) -> tuple[Compiled, Compiled]:
    return compile(policy), compile(policy, reference=True)


def agree(policy: Policy, events: Iterable[Any]) -> None:
    """Generated and interpreted: the same states and decisions. Both go on from the interpreter's."""
    generated, reference = both(policy)
    state, _ = reference.step(reference.initial, RunStarted(0, "r", "t", thread_used=BEFORE))
    for event in events:
        expected = reference.step(state, event)
        assert generated.step(state, event) == expected
        state = expected[0]


@pytest.mark.parametrize("name", POLICIES)
def test_around_every_boundary(name: str) -> None:
    for spent in (*range(225, 235), *range(440, 460), *range(890, 912)):
        for at in (10, 800):
            agree(POLICIES[name], [*turn(1, at, spent), *turn(2, at + 10, 0), *turn(3, at + 20, spent, tools=3)])


@pytest.mark.parametrize("name", POLICIES)
def test_around_every_deadline(name: str) -> None:
    for at in (*range(892, 904), *range(996, 1003)):
        agree(POLICIES[name], [*turn(1, 10, 1), *turn(2, at, 1), *turn(3, at + 5, 1)])


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("size", [None, -1, 0, 1, 449, 450, 451, 899, 900, 901])
@pytest.mark.parametrize("wanted", [None, -1, 0, 1, 200, 10**9])
def test_sizes_of_requests(name: str, size: int | None, wanted: int | None) -> None:
    agree(POLICIES[name], turn(1, 10, 5, wanted=wanted, size=size))


@pytest.mark.parametrize("name", POLICIES)
def test_what_no_provider_reports(name: str) -> None:
    odd = [
        CallRequested(10, "1", "main", "nobody knows"),
        CallRequested(11, "2", "main", "m"),
        ModelReplied(12, "2", 1, "tool_calls", calls=(Proposed("1.0", "search"),), usage=Usage(-5, 7)),
        ToolRequested(13, "1.0"),
        ToolEnded(14, "1.0", usage=Usage(3, 4)),
        CallRequested(15, "3", "main", "m"),
        ModelReplied(16, "3", 1, "pause", calls=(Proposed("2.0", "search"),)),
        ToolRequested(1 << 62, "2.0"),
        ToolRequested(1 << 63, "2.0"),
    ]
    agree(POLICIES[name], odd)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "changes",
    [
        {"estimated": True},
        {"attempt": 2},
        {"usage": None},
        {"calls": (Proposed("1.0", "search", problem="not JSON"),)},
        {"calls": (Proposed("1.0", "search", registered=False),)},
        {"calls": (Proposed("1.0", "search"), Proposed("1.1", "search", kind="hosted"))},
        {"calls": (Proposed("1.0", "search"), Proposed("1.1", "answer", kind="output"))},
        {"calls": ()},
    ],
)
def test_replies_out_of_the_ordinary(name: str, changes: dict[str, Any]) -> None:
    call, reply, *rest = turn(1, 10, 5)
    agree(POLICIES[name], [call, structs.replace(reply, **changes), *rest, *turn(2, 20, 5)])


@pytest.mark.parametrize("tools", [1, 2, 31, 32, 33, 40])
def test_rounds_of_many_calls(tools: int) -> None:
    for policy in POLICIES.values():
        agree(policy, turn(1, 10, 5, tools=tools))


def test_an_ordinary_turn_needs_no_handler() -> None:
    """Far from every limit nothing but the generated code decides: that is what makes it quick."""
    far = Policy(
        name="p",
        limits=(
            tokens(10**6),
            Limit(resource="cost", max=10**9),
            Limit(resource="wall", max=10**6),
            Limit(resource="tool_iterations", max=50, then=(Extend(by=5), *FINALIZE)),
        ),
        thresholds=(Threshold(percent=80, resource="tokens", action="warn"),),
        tools=(ToolRule(glob="*", timeout=1000),),
        prices=(PRICE,),
    )
    compiled = compile(far)

    def refused(state: Any, event: Any) -> Any:
        raise AssertionError(f"{event} went to the handlers")

    step = hot_path.load(compiled.core, hot_path.source(compiled.core), refused)
    state = replay(compiled, [RunStarted(0, "r")])
    decided = []
    for event in [*turn(1, 10, 100), *turn(2, 20, 100)]:
        state, decision = step(state, event)
        decided.append(type(decision))
    assert decided[:3] == [Call, RunTools, Execute]


def test_ladders_that_move_a_constant_leave_everything_to_the_handlers() -> None:
    extended = Limit(resource="tokens", max=100, reserve=10, then=(Extend(by=50), *FINALIZE))
    asked = Limit(resource="wall", max=100, reserve=10, then=(Finalize(using="wording"),))
    watched = Policy(
        name="p",
        limits=(Limit(resource="tool_calls", max=9, then=(Extend(by=5),)),),
        thresholds=(Threshold(percent=80, resource="tool_calls", action="warn"),),
    )
    for policy in (Policy(name="p", limits=(extended,)), Policy(name="p", limits=(asked,)), watched):
        assert hot_path.source(compile(policy).core) == ""
        agree(policy, [*turn(1, 10, 30), *turn(2, 20, 30), *turn(3, 60, 30)])
