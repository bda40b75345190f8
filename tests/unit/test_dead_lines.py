"""Lines that never act: what is said of each, and from which limit on it would."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.ladders import Extend, Finalize
from engine.core.policy import Policy
from engine.core.statements import Limit
from engine.verify.prove import prove
from engine.verify.verdicts import Dead


def limit(resource: Any, maximum: int, *then: Any) -> Limit:
    return Limit(resource=resource, max=maximum, then=then)


def dead(*limits: Limit) -> tuple[Dead, ...]:
    return prove(Policy(name="p", limits=limits), claims=()).dead


NEVER_FINAL = "no final call is ever made for `tool_iterations`"


def test_a_line_that_another_limit_comes_before_says_from_where_it_acts() -> None:
    (found,) = dead(limit("llm_calls", 6, Finalize()), limit("tool_iterations", 5, Finalize()))
    assert found.what == NEVER_FINAL
    assert found.why == "`llm_calls 6` comes before it: it acts from `llm_calls 7` on"


def test_where_every_line_acts_nothing_is_said() -> None:
    assert dead(limit("llm_calls", 7, Finalize()), limit("tool_iterations", 5, Finalize())) == ()
    assert dead(limit("llm_calls", 9), limit("tool_iterations", 3, Extend(by=2))) == ()


def test_a_line_that_no_number_brings_to_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search that raises limits: of a limit that allows nothing the search for all limits knows it."""
    monkeypatch.setattr("engine.verify.dead._RAISED", ())
    found = dead(limit("llm_calls", 0), limit("tool_iterations", 5, Finalize()))
    assert [line.why for line in found if line.what == NEVER_FINAL] == ["whatever the limits above 0 are"]
    # This one acts at other limits, and so nothing is said of all.
    found = dead(limit("llm_calls", 6, Finalize()), limit("tool_iterations", 5, Finalize()))
    assert [line.why for line in found] == [""]
