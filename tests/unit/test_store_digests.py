"""Digests of decisions: the same for the same deeds, whichever line of a policy decided."""

from __future__ import annotations

import pytest
from msgspec import structs

from engine.core import decisions as d
from engine.core.state import Outcome


def close(because: str) -> tuple[d.Reply, ...]:
    return (d.Reply(0, "1.0", "no", "stopped", because=because),)


def decisions(because: str) -> list[d.AnyDecision]:
    notes = (d.Note("warn", because),)
    return [
        d.Continue(because, notes),
        d.Wait(9, because, notes),
        d.Call(1, "1", 1, "main", 9, because=because, notes=notes),
        d.Retry(1, "1", 2, "main", 9, because, notes),
        d.Execute(1, 0, "1.0", 1, 9, because, notes),
        d.RunTools(1, 1, (*close(because), d.Execute(1, 1, "1.1", 1, 9, because)), because=because, notes=notes),
        d.Resolve(1, "text", "llm_calls", 1, 1, 9, because, notes),
        d.Stop(1, 9, "1", ("1.1",), close(because), because, notes),
        d.End(1, Outcome("failed", because=because), close(because), because, notes),
    ]


@pytest.mark.parametrize("number", range(9))
def test_a_moved_line_changes_no_digest(number: int) -> None:
    assert d.digest(decisions("a.policy:1")[number]) == d.digest(decisions("b.policy:7")[number])


@pytest.mark.parametrize("number", range(2, 9))
def test_another_step_number_changes_the_digest(number: int) -> None:
    decision = decisions("a.policy:1")[number]
    assert d.digest(decision) != d.digest(structs.replace(decision, n=2))  # type: ignore[type-var]
