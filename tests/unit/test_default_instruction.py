"""The default instruction of a final call says in words what led to it."""

from __future__ import annotations

import pytest

from engine.core.decisions import Call
from engine.core.events import AnyEvent, CallRequested, ModelFailed, ModelReplied, Proposed, RunStarted, ToolEnded
from engine.core.policy import Breaker, Detector, FailureRule, Finalize, Limit, Policy
from engine.core.step import compile

TOLD = (
    "You have reached the limit of this run ({}). Do not call any tools. Give your best final answer now, from the "
    "information you already have."
)

LIMIT = Policy(name="p", limits=(Limit(resource="llm_calls", max=1, then=(Finalize(),)),))
FAILURE = Policy(name="p", failures=(FailureRule(reasons=("*",), then=(Finalize(),)),))
OWN = Policy(name="p", failures=(FailureRule(reasons=("*",), then=(Finalize(text="Because {resource}: end."),)),))
BREAKER = Policy(name="p", breakers=(Breaker(glob="*", trips=(Detector(kind="failures", n=1),), when_open="finalize"),))

FIRST: list[AnyEvent] = [RunStarted(0, "r"), CallRequested(1, "1", "m")]
FAILED: list[AnyEvent] = [*FIRST, ModelFailed(2, "1", 1, "timeout"), CallRequested(3, "2", "m")]
TRIPPED: list[AnyEvent] = [
    *FIRST,
    ModelReplied(2, "1", 1, calls=(Proposed("1.0", "a"),)),
    ToolEnded(3, "1.0", status="failed"),
    CallRequested(4, "2", "m"),
    ModelReplied(5, "2", 1, calls=(Proposed("2.0", "a"),)),
    CallRequested(6, "3", "m"),
]


@pytest.mark.parametrize(
    ("policy", "events", "instruction"),
    [
        (LIMIT, FIRST, TOLD.format("llm_calls")),
        (FAILURE, FAILED, TOLD.format("a model call failed")),
        (OWN, FAILED, "Because a model call failed: end."),
        (BREAKER, TRIPPED, TOLD.format("a tool was switched off")),
    ],
)
def test_what_the_instruction_says(policy: Policy, events: list[AnyEvent], instruction: str) -> None:
    for reference in (True, False):
        compiled = compile(policy, reference=reference)
        state, decision = compiled.initial, None
        for event in events:
            state, decision = compiled.step(state, event)
        assert isinstance(decision, Call)
        assert decision.final
        assert decision.instruction == instruction
