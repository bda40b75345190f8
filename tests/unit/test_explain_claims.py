"""What the sentences of ``explain`` claim, held against ``step``: a model that never stops asking for tools."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import engine
from engine.core.decisions import Call, End, Execute, RunTools
from engine.core.events import CallRequested, ModelReplied, Proposed, RunStarted, ToolEnded, ToolRequested
from engine.core.messages import Usage
from policy_lang import loads


class Seen(NamedTuple):
    """Calls made, tools executed, which call was final (0: none), and how the run ended."""

    calls: int
    executed: int
    final: int
    end: str


def greedy(policy: str, *, tools: int = 1, registered: bool = True, output: int = 10, most: int = 60) -> Seen:
    """Drive a run whose model asks for tools in every ordinary call and answers in the final one."""
    compiled = engine.compile(loads(f'policy "p" lang 1\n{policy}'))
    state, _ = compiled.step(compiled.initial, RunStarted(0, run="r"))
    calls = executed = final = 0
    while calls < most:
        state, decision = compiled.step(state, CallRequested(0, call=str(calls + 1), input_tokens=10))
        if isinstance(decision, End):
            return Seen(calls, executed, final, f"{decision.outcome.status} {decision.outcome.reason}")
        assert isinstance(decision, Call)
        calls += 1
        usage = Usage(input=10, output=output)
        if decision.final:
            final = calls
            reply = ModelReplied(0, call=str(calls), text=True, usage=usage)
        else:
            asked = tuple(Proposed(f"{calls}.{i}", "t", registered=registered) for i in range(tools))
            reply = ModelReplied(0, call=str(calls), finish="tool_calls", calls=asked, usage=usage)
        state, decision = compiled.step(state, reply)
        if isinstance(decision, RunTools):
            for verdict in decision.verdicts:
                if isinstance(verdict, Execute):
                    executed += 1
                    state, _ = compiled.step(state, ToolRequested(0, id=verdict.id))
                    state, decision = compiled.step(state, ToolEnded(0, id=verdict.id))
        if isinstance(decision, End):
            return Seen(calls, executed, final, f"{decision.outcome.status} {decision.outcome.reason}")
    raise AssertionError("the run did not end")


REACTIVE = "finalization {\n  mode reactive\n}\n"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # "makes at most 5 model calls; the last of them is the final call" / "when it needs another, … incomplete"
        ("llm_calls 5 then finalize", Seen(5, 4, 5, "finalized llm_calls")),
        ("llm_calls 5", Seen(5, 5, 0, "incomplete llm_calls")),
        ("llm_calls 0 then finalize", Seen(0, 0, 0, "incomplete llm_calls")),
        # "after the last of them, the next model call is the final one" / "a further round is not run"
        ("tool_iterations 5 then finalize", Seen(6, 5, 6, "finalized tool_iterations")),
        ("tool_iterations 0 then finalize", Seen(1, 0, 1, "finalized tool_iterations")),
        ("tool_iterations 5 then extend 3 once then finalize", Seen(9, 8, 9, "finalized tool_iterations")),
        ("tool_iterations 0 then extend 3 once then stop", Seen(1, 0, 0, "incomplete tool_iterations")),
        ("tool_iterations 5", Seen(6, 5, 0, "incomplete tool_iterations")),
        # "extended once by 4 (capped)"
        ("llm_attempts 4 then extend 9 once", Seen(8, 8, 0, "incomplete llm_attempts")),
        ("llm_attempts 4 then extend 2 once then finalize", Seen(6, 5, 6, "finalized llm_attempts")),
    ],
)
def test_calls_and_rounds(limits: str, expected: Seen) -> None:
    assert greedy(f"limits {{\n{limits}\n}}\n") == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # "when they are used up, calls left in the round are answered instead of executed, and the next … final"
        ("tool_calls 5 then finalize", Seen(4, 5, 4, "finalized tool_calls")),
        # "a further call is answered instead of executed, and once its round is complete the run ends"
        ("tool_calls 5", Seen(3, 5, 0, "incomplete tool_calls")),
        ("tool_calls 4", Seen(3, 4, 0, "incomplete tool_calls")),
        # "none of a round that does not fit as a whole"
        ("tool_calls 5 atomic", Seen(3, 4, 0, "incomplete tool_calls")),
        ("tool_calls 5 atomic then finalize", Seen(4, 4, 4, "finalized tool_calls")),
    ],
)
def test_tool_calls_two_a_round(limits: str, expected: Seen) -> None:
    assert greedy(f"limits {{\n{limits}\n}}\n", tools=2) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # "a further round is answered instead of run, and then the next model call is the final one"
        ("tool_iterations 5 then finalize", Seen(7, 5, 7, "finalized tool_iterations")),
        ("tool_calls 4 then finalize", Seen(6, 4, 6, "finalized tool_calls")),
        ("tool_calls 0 then finalize", Seen(2, 0, 2, "finalized tool_calls")),
    ],
)
def test_reactive(limits: str, expected: Seen) -> None:
    assert greedy(f"limits {{\n{limits}\n}}\n{REACTIVE}") == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # "after the last of them, the next model call is the final one" / "the next one is answered too, and …"
        ("unknown_tools 2 then finalize", Seen(3, 0, 3, "finalized unknown_tools")),
        ("unknown_tools 0 then finalize", Seen(2, 0, 2, "finalized unknown_tools")),
        ("unknown_tools 2", Seen(3, 0, 0, "incomplete unknown_tools")),
        ("unknown_tools 0", Seen(1, 0, 0, "incomplete unknown_tools")),
    ],
)
@pytest.mark.parametrize("mode", ["", REACTIVE])
def test_unknown_tools(limits: str, expected: Seen, mode: str) -> None:
    """The mode makes no difference to them."""
    assert greedy(f"limits {{\n{limits}\n}}\n{mode}", registered=False) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # every call takes 20 tokens and asks for room of 11: "when too little is left for another call"
        ("tokens 100", Seen(5, 5, 0, "incomplete tokens")),
        ("tokens 110", Seen(5, 5, 0, "incomplete tokens")),
        ("tokens 111", Seen(6, 6, 0, "incomplete tokens")),
        # "the last 30 are kept for the final call, which comes once another call would need them"
        ("tokens 111 reserve 30 then finalize", Seen(5, 4, 5, "finalized tokens")),
        ("tokens 51 reserve 30 then extend 20 once then finalize", Seen(3, 2, 3, "finalized tokens")),
    ],
)
def test_tokens(limits: str, expected: Seen) -> None:
    assert greedy(f"limits {{\n{limits}\n}}\n") == expected
