"""Hypothesis strategies for runs that wait for people: limits that ask one, and calls that are not in our hands."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st

from engine.core.messages import Usage
from engine.core.policy import (
    Ask,
    Consult,
    Extend,
    Finalize,
    Limit,
    Policy,
    Price,
    ResourceName,
    ScopeName,
    Step,
    Stop,
)
from engine.core.vocabulary import RESOURCES
from engine.testing.drawn_policies import AMOUNTS, COUNTED, error_policies
from engine.testing.drawn_worlds import error_worlds
from engine.testing.scripts import Tool, Turn, World

_QUESTIONS: tuple[tuple[Step, ...], ...] = (
    (Ask(),),
    (Ask(up_to=1), Finalize()),
    (Ask(up_to=2, times=2), Stop()),
    (Ask(times=3), Finalize(text="{used} of {limit} used, {left} left.")),
    (Extend(by=1), Ask(up_to=1), Finalize()),
    (Ask(up_to=3), Extend(by=2), Finalize(using="ending")),
    (Consult(name="who"), Ask(up_to=2), Finalize()),
    (Finalize(using="ending"), Ask(up_to=1, times=2)),
)
_ASKABLE: tuple[ResourceName, ...] = tuple(r for r in (*COUNTED, *AMOUNTS) if RESOURCES[r].askable)
_WALLS: tuple[tuple[tuple[ScopeName, int, int, bool, tuple[Step, ...]], ...], ...] = (
    (),
    (("subtree", 60, 0, False, ()),),
    (("subtree", 60, 20, False, (Finalize(),)),),
    (("subtree", 60, 0, True, ()),),
    (("run", 60, 20, True, (Finalize(),)), ("subtree", 40, 0, False, ())),
)


@st.composite
def asking_limits(draw: st.DrawFn, resource: ResourceName) -> Limit:
    """A limit whose ladder asks a person, and that is reached soon."""
    scopes: list[ScopeName | None] = [None, None, "run", "thread", "subtree"]
    scope, then = draw(st.sampled_from(scopes)), draw(st.sampled_from(_QUESTIONS))
    if resource in COUNTED:
        atomic = resource == "tool_calls" and draw(st.booleans())
        maximum = draw(st.sampled_from([2, 1, 3, 0]))
        return Limit(resource=resource, scope=scope, max=maximum, atomic=atomic, then=then)
    maximum, reserve = draw(st.sampled_from([(20, 5), (40, 10), (10, 0), (100, 20), (0, 0)]))
    if not reserve:
        then = tuple(s for s in then if not isinstance(s, Finalize))
    return Limit(resource=resource, scope=scope, max=maximum, reserve=reserve, then=then)


@st.composite
def asking_policies(draw: st.DrawFn) -> Policy:
    """One to three limits that ask a person, and perhaps walls that stand still meanwhile, or do not."""
    base = draw(error_policies(4))
    resources = draw(st.lists(st.sampled_from(_ASKABLE), unique=True, min_size=1, max_size=3))
    walls = [
        Limit(resource="wall", scope=scope, max=maximum, reserve=reserve, counting_approvals=counting, then=then)
        for scope, maximum, reserve, counting, then in draw(st.sampled_from(_WALLS))
    ]
    mine = {limit.id: limit for limit in (*walls, *(draw(asking_limits(r)) for r in resources))}
    others = [limit for limit in base.limits if limit.id not in mine and draw(st.booleans())]
    models = ("small", "large")
    prices = tuple(Price(model=model, input=1_000_000, output=2_000_000) for model in models)
    return base.model_copy(update={"limits": (*mine.values(), *others), "prices": prices})


_AWAY = (
    Tool("search", "external"),
    Tool("fetch", "external", later="failed"),
    Tool("deploy", "external", answer="expired"),
    Tool("shell", "external", answer="refused"),
    Tool("search", "agent"),
    Tool("fetch", "agent", status="failed"),
    Tool("writer", "handoff"),
    Tool("nobody", "handoff", registered=False),
    Tool("search", status="deferred"),
    Tool("fetch", status="deferred", later="timed_out", rank=1),
    Tool("fetch", status="deferred", usage=Usage(1, 1), answer="expired"),
    Tool("shell", "hosted"),
    Tool("nobody", registered=False),
    Tool("search"),
    Tool("fetch", status="failed", rank=1),
    Tool("shell", rank=2),
)


@st.composite
def asking_worlds(draw: st.DrawFn) -> World:
    """People take their time, grant more or refuse it, and bring the results of calls later."""
    base = draw(error_worlds())
    turns = list(base.turns)
    interrupts: list[Literal["", "cancel", "tick"]] = ["", "", "", "", "", "tick", "cancel"]
    for place in range(len(turns)):
        if draw(st.integers(0, 2)):
            turns[place] = Turn(
                finish="tool_calls",
                tools=tuple(draw(st.lists(st.sampled_from(_AWAY), min_size=1, max_size=3))),
                takes=draw(st.sampled_from([0, 0, 3, 7])),
                interrupt_people=draw(st.sampled_from(interrupts)),
                patient=draw(st.booleans()),
            )
    return replace(
        base,
        turns=tuple(turns),
        grants=tuple(draw(st.lists(st.sampled_from([0, 1, 2, 9, 100, -1, -2]), min_size=1, max_size=4))),
        thinks=draw(st.sampled_from([0, 1, 30, 1_000])),
    )
