"""Two limits on calls of unknown tools: one that does not fit the first is counted by the second all the same."""

from engine.core.events import CallRequested, ModelReplied, Proposed, RunStarted
from engine.core.policy import Policy
from engine.core.statements import Limit
from engine.core.step import compile


def test_a_call_over_one_limit_is_used_of_the_other() -> None:
    limits = (
        Limit(resource="unknown_tools", scope="run", max=1),
        Limit(resource="unknown_tools", scope="thread", max=5),
    )
    compiled = compile(Policy(name="p", limits=limits))
    state, _ = compiled.step(compiled.initial, RunStarted(0, "r", thread="t"))
    state, _ = compiled.step(state, CallRequested(1, "1", "main"))
    calls = tuple(Proposed(f"1.{i}", "nobody", registered=False) for i in range(3))
    state, _ = compiled.step(state, ModelReplied(2, "1", 1, "tool_calls", calls=calls))
    left = dict(zip((v.name for v in compiled.machine.variables), state.vars, strict=True))
    assert left["used_unknown_tools"] == 3
    assert (left["unknown_tools_left"], left["unknown_tools_per_thread_left"]) == (0, 2)
