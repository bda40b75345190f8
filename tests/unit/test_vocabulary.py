"""Tables that say the same thing in different places: where they must agree, they do."""

from __future__ import annotations

from typing import get_args

import pytest

from engine.core.core import PENDING, PHASE, REASON
from engine.core.decisions import NUMBERED
from engine.core.host import ABILITIES, NEEDS
from engine.core.machine.build import METERS, build
from engine.core.machine.plan import DRAWN_BY_CALLS
from engine.core.policy import Limit, Policy, ResourceName, ScopeName
from engine.core.state import Used
from engine.core.texts import duration
from engine.core.vocabulary import PREFER_ORDER, REASONS, REFUSALS, RESOURCES, SCOPES, limit_name
from policy_lang.quantities import duration_text


def test_a_policy_knows_the_resources_and_scopes_of_the_vocabulary() -> None:
    assert get_args(ResourceName) == tuple(RESOURCES)
    assert get_args(ScopeName) == SCOPES
    assert {scope for r in RESOURCES.values() for scope in r.scopes} == set(SCOPES)
    assert all(r.scope in r.scopes for r in RESOURCES.values() if r.scopes)


def test_whatever_can_finalize_has_its_place_among_the_preferences() -> None:
    assert set(RESOURCES) - {"attempt_wall"} == set(PREFER_ORDER) - {"llm_failure", "breaker"}


def test_what_is_counted_is_metered_and_reported() -> None:
    assert set(METERS) == {r.name for r in RESOURCES.values() if r.kind == "counted"}
    assert set(METERS) <= set(Used.__struct_fields__)
    assert set(DRAWN_BY_CALLS) <= set(RESOURCES)


def test_the_first_variables_of_a_machine_are_where_they_are_looked_for() -> None:
    names = [variable.name for variable in build(Policy(name="p")).variables]
    assert (names[PHASE], names[REASON], names[PENDING]) == ("phase", "reason", "pending")


def test_a_broader_reason_is_a_reason_and_has_none_itself() -> None:
    assert all(REASONS[broader] is None for broader in REASONS.values() if broader is not None)


def test_every_round_limit_has_its_refusal() -> None:
    assert {"tool_calls", "tool_iterations"} <= set(REFUSALS)


def test_a_law_needs_abilities_that_exist() -> None:
    assert {a for groups in NEEDS.values() for group in groups for a in group} <= set(ABILITIES)


def test_what_is_numbered_has_a_number() -> None:
    assert all("n" in kind.__struct_fields__ for kind in NUMBERED)


@pytest.mark.parametrize("name", RESOURCES)
def test_every_limit_has_a_name_of_its_own(name: str) -> None:
    scopes = RESOURCES[name].scopes or (None,)
    named = [Limit.model_validate({"resource": name, "scope": scope, "max": 1}).id for scope in scopes]
    assert len(set(named)) == len(named)
    assert named == [limit_name(name, scope) for scope in scopes]
    assert name in named


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, 60_000, 61_001, 3_600_000, 86_399_999, 86_400_000, 90_061_001])
def test_the_core_spells_durations_as_the_language_does(ms: int) -> None:
    assert duration(ms) == duration_text(ms)
