"""What `explain` says of limits that ask a person, held against ``step``: a model that never stops asking for tools."""

from __future__ import annotations

import pytest

import engine
from engine.core.decisions import AnyDecision, Call, End, Execute, RunTools, Suspend
from engine.core.events import CallRequested, ExtensionAnswered, ModelReplied, Proposed, RunStarted, ToolEnded
from engine.core.messages import Usage
from engine.core.state import State
from policy_lang import loads


class Person:
    """Grants so much, so often, and refuses then. Keeps what was asked: the most that could be granted."""

    def __init__(self, grant: int, often: int) -> None:
        self.grant, self.often = grant, often
        self.asked: list[int] = []

    def answer(self, decision: Suspend) -> ExtensionAnswered:
        (request,) = decision.requests
        self.asked.append(request.up_to)
        if len(self.asked) > self.often:
            return ExtensionAnswered(0, id=request.id, answer="refused")
        return ExtensionAnswered(0, id=request.id, answer="granted", amount=self.grant)


def greedy(limit: str, person: Person) -> tuple[int, str]:
    """Rounds that ran under the limit, and how the run ended."""
    compiled = engine.compile(loads(f'policy "p" lang 1\nlimits {{\n  {limit}\n}}\n'))
    state, decision = compiled.step(compiled.initial, RunStarted(0, run="r"))
    rounds = 0

    def settled(state: State, decision: AnyDecision) -> tuple[State, AnyDecision]:
        while isinstance(decision, Suspend):
            state, decision = compiled.step(state, person.answer(decision))
        return state, decision

    for number in range(1, 40):
        state, decision = settled(*compiled.step(state, CallRequested(0, call=str(number), input_tokens=10)))
        if not isinstance(decision, End):
            assert isinstance(decision, Call)
            asked = () if decision.final else (Proposed(f"{number}.0", "t", registered=True),)
            finish = "stop" if decision.final else "tool_calls"
            reply = ModelReplied(0, str(number), 1, finish, decision.final, asked, Usage(10, 10))
            state, decision = settled(*compiled.step(state, reply))
        if isinstance(decision, RunTools) and isinstance(decision.verdicts[0], Execute):
            rounds += 1
            state, decision = settled(*compiled.step(state, ToolEnded(0, id=decision.verdicts[0].id)))
        if isinstance(decision, End):
            return rounds, f"{decision.outcome.status} {decision.outcome.reason}"
    raise AssertionError("the run did not end")


@pytest.mark.parametrize(
    ("limit", "person", "expected", "asked"),
    [
        ("tool_iterations 2 then ask then finalize", Person(2, 9), (4, "finalized tool_iterations"), [2]),
        ("tool_iterations 2 then ask then finalize", Person(2, 0), (2, "finalized tool_iterations"), [2]),
        ("tool_iterations 2 then ask up to 5", Person(5, 9), (7, "incomplete tool_iterations"), [5]),
        ("tool_iterations 2 then ask up to 3 times 2", Person(1, 9), (4, "incomplete tool_iterations"), [3, 3]),
        ("tool_iterations 2 then ask up to 3 times 3", Person(3, 1), (5, "incomplete tool_iterations"), [3, 3]),
        ("tool_iterations 0 then ask up to 2", Person(2, 9), (2, "incomplete tool_iterations"), [2]),
        ("tool_iterations 1 then extend 1 once then ask", Person(1, 9), (3, "incomplete tool_iterations"), [1]),
        ("tool_calls 2 then ask up to 1", Person(1, 9), (3, "incomplete tool_calls"), [1]),
        ("tokens 50 then ask up to 40", Person(40, 9), (4, "incomplete tokens"), [40]),
        ("tokens 50 then ask up to 40", Person(40, 0), (2, "incomplete tokens"), [40]),
    ],
)
def test_what_a_person_may_grant(limit: str, person: Person, expected: tuple[int, str], asked: list[int]) -> None:
    assert greedy(limit, person) == expected
    assert person.asked == asked
