"""Usage of one attempt is charged once, whatever is told again, and whatever follows from the reply."""

from __future__ import annotations

import pytest

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Finalization, Policy
from engine.core.step import compile

EMPTY = e.ModelReplied(0, "1", usage=Usage(20, 20))
PAUSED = e.ModelReplied(0, "1", finish="pause", text=True, usage=Usage(20, 20))


@pytest.mark.parametrize("reply", [EMPTY, PAUSED], ids=["empty", "paused"])
@pytest.mark.parametrize("reports", [(), (Usage(20, 4),)], ids=["at the end", "early"])
def test_what_a_reply_has_said_costs_nothing_when_it_is_told_again(
    reply: e.ModelReplied, reports: tuple[Usage, ...]
) -> None:
    compiled = compile(Policy(name="p", finalization=Finalization(empty_retries=1)))
    early = [e.UsageReported(0, "1", 1, usage) for usage in reports]
    late = e.UsageReported(0, "1", 1, Usage(20, 20))
    state, decision = compiled.initial, None
    for event in (e.RunStarted(0, "r"), e.CallRequested(0, "1"), *early, reply):
        state, decision = compiled.step(state, event)
    assert isinstance(decision, d.Retry)
    assert compiled.used(state).tokens == 40
    state, _ = compiled.step(state, late)
    assert compiled.used(state).tokens == 40
