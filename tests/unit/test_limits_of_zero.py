"""A limit of 0 means none of it, whatever its ladder would extend it by."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.policy import Extend, Finalize, Limit, Policy
from engine.core.step import compile


@pytest.mark.parametrize("resource", ["tool_iterations", "tool_calls"])
@pytest.mark.parametrize("then", [(Finalize(),), (Extend(by=3), Finalize())])
def test_the_first_call_is_the_final_one(resource: str, then: tuple[Extend | Finalize, ...]) -> None:
    """An extension at most doubles: there is nothing to extend, and no round is asked for in vain."""
    limit = Limit.model_validate({"resource": resource, "max": 0, "then": then})
    compiled = compile(Policy(name="zero", limits=(limit,)))
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "run"))
    _, call = compiled.step(state, e.CallRequested(0, "1"))
    assert isinstance(call, d.Call)
    assert (call.final, call.why) == (True, resource)


def test_without_a_finalization_nothing_is_extended_either() -> None:
    limit = Limit(resource="tool_iterations", max=0, then=(Extend(by=3),))
    compiled = compile(Policy(name="zero", limits=(limit,)))
    state, _ = compiled.step(compiled.initial, e.RunStarted(0, "run"))
    state, _ = compiled.step(state, e.CallRequested(0, "1"))
    _, end = compiled.step(state, e.ModelReplied(0, "1", calls=(e.Proposed("1.0", "t"),)))
    assert isinstance(end, d.End)
    assert end.outcome.reason == "tool_iterations"
    assert [note.kind for note in end.notes] == []
