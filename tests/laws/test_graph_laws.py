"""A picture shows what runs do: every line of a policy that decides something is drawn, and every way a run may end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core.machine.plan import plans_of
from engine.core.policy import Origin, Policy
from engine.core.step import compile
from engine.testing.drawn_policies import error_policies, policies
from engine.testing.drawn_questions import asking_policies, asking_worlds
from engine.testing.drawn_worlds import error_worlds, worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify import passages
from policy_lang.graph.life import life, never_fires
from policy_lang.graph.picture import Picture
from policy_lang.graph.searched import Reach

ANY = st.one_of(
    st.tuples(policies(4), worlds()),
    st.tuples(error_policies(4), error_worlds()),
    st.tuples(asking_policies(), asking_worlds()),
)
UNDRAWN = {"cancelled"}
"""Anybody can cancel any run at any time."""


def on_lines(policy: Policy) -> Policy:
    """The same policy with every rule on a line of its own."""
    lines = count(1)

    def placed(rule: object) -> object:
        return rule.model_copy(update={"origin": Origin(file="p", line=next(lines))})  # type: ignore[attr-defined]

    parts = ("limits", "failures", "breakers", "tools", "thresholds")
    update = {part: tuple(placed(rule) for rule in getattr(policy, part)) for part in parts}
    return policy.model_copy(update={**update, "finalization": placed(policy.finalization)})


def drawn(policy: Policy) -> Picture:
    found = passages.passages(policy)
    return Picture(policy.name, *life(policy, Reach(found["rules"], found["cut"])), (), found["cut"])


def decided(host: Host) -> Iterator[tuple[str, str]]:
    """What was decided by a rule, and where that stands."""
    for step in host.steps:
        match step.decision:
            case d.End(outcome=outcome):
                yield outcome.status, outcome.because
            case d.Call(final=True, because=because):
                yield "final", because
            case d.Suspend(because=because):
                yield "suspended", because
            case d.Retry(because=because):
                yield "", because


@pytest.fixture(autouse=True)
def _small_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "MAX_STATES", 4_000)
    monkeypatch.setattr(passages, "MAX_STEPS", 1_000)


@settings(max_examples=60)
@given(ANY)
def test_what_is_known_without_a_search_is_what_the_search_finds(played: tuple[Policy, World]) -> None:
    found = passages.passages(played[0])["rules"]
    for plan in plans_of(played[0]):
        assert not set(never_fires(plan)) & set(found)


def shown(picture: Picture) -> set[tuple[str, str]]:
    """Each line on an arrow, with the box it leads to; "" for one that leads back to where it began."""
    return {
        ("" if arrow.source == arrow.target else arrow.target, str(item.origin))
        for arrow in picture.arrows
        for item in arrow.items
    }


@settings(max_examples=40)
@given(ANY)
def test_every_line_that_decides_is_drawn_where_it_leads(played: tuple[Policy, World]) -> None:
    policy, world = on_lines(played[0]), played[1]
    picture = drawn(policy)
    lines, boxes = shown(picture), {box.id for box in picture.boxes}
    host = Host(compile(policy), world)
    host.run()
    for box, because in decided(host):
        if box in UNDRAWN:
            continue
        assert box in boxes | {""}
        if re.fullmatch(r"p:\d+", because):
            assert ("final" if box == "finalized" else box, because) in lines, because
