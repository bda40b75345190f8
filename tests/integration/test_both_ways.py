"""What exploration finds is what happens: a shortest run to every rule of every example and of drawn policies, and runs
that refute a claim, come out alike on ``step``, through our driver over real HTTP, and again from the SQLite journal
that it wrote.

Every way that people, tools, functions and time go is gone (``stage``). Left out is what our driver never does, each
with its reason; of the examples these are named one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec import structs
from stage import Cannot, led

from engine.core import decisions as d
from engine.core import events as e
from engine.core.messages import Usage
from engine.core.policy import Policy
from engine.core.step import compile
from engine.store import Step
from engine.store.sqlite import SqliteStore
from engine.testing import check_journal, explore, policies
from engine.testing.witnesses import fired
from engine.verify.prove import prove
from engine.verify.replay import Played
from policy_lang import load, loads

EXAMPLES = sorted((Path(__file__).parents[2] / "spec_examples").glob("*/*.policy"))

CANNOT = {
    ("grandchild_approval", "attempt.late.wall"): "an attempt that was lost is asked for again",
    ("grandchild_approval", "call.late.wall"): "time passes before a call is asked for",
    ("grandchild_approval", "tick.late.wall"): "time passes before a call is asked for",
    ("grandchild_approval", "tick.stop.wall"): "what is in flight at a deadline goes on",
}
"""Rules of the examples whose shortest run our driver never makes. To the second there is another: see below."""


def gist(event: e.AnyEvent, decision: d.AnyDecision) -> tuple[Any, ...]:
    """An event and its decision without times, usage, contents and texts."""
    told: tuple[Any, ...] = ()
    match decision:
        case d.Call(call=call, attempt=attempt, client=client, final=final, why=why):
            told = (call, attempt, client, final, why)
        case d.RunTools(verdicts=verdicts, complete=complete):
            told = (complete, *((type(v).__name__, v.id, getattr(v, "why", "")) for v in verdicts))
        case d.End(outcome=outcome):
            told = (outcome.status, outcome.reason, outcome.limit and outcome.limit.resource)
    about = getattr(event, "id", "") or getattr(event, "call", "")
    return (type(event).__name__, about, type(decision).__name__, decision.because, *told)


def by_size(policy: Policy, found: Played, ours: Step, size: int | None) -> bool:
    """Is it only for the request's size (tokens) that our driver's call or further attempt was decided otherwise?"""
    event, state = ours.event, found.before
    if size is None or not isinstance(event, e.CallRequested | e.RetryDue):
        return False
    plain = gist(event, compile(policy).step(state, found.event)[1])
    if state.call is not None and isinstance(event, e.RetryDue):
        state = structs.replace(state, call=structs.replace(state.call, input_tokens=size))
    sized = gist(event, compile(policy).step(state, event)[1])
    return (sized, plain) == (gist(event, ours.decision), gist(event, found.decision))


def alike(policy: Policy, played: Sequence[Played], journal: Path) -> None:
    """Play the run all ways. Raises ``Cannot`` where our driver never goes that way."""
    compiled, state = compile(policy), compile(policy).initial
    for step in played:
        state, decision = compiled.step(state, step.event)
        assert (decision, state) == (step.decision, step.after)
    led(policy, played, journal)
    store = SqliteStore(journal, read_only=True)
    steps = store.load("run").steps
    store.close()
    size: int | None = None
    for found, ours in zip(played, steps, strict=False):
        size = ours.event.input_tokens if isinstance(ours.event, e.CallRequested) else size
        if gist(found.event, found.decision) != gist(ours.event, ours.decision):
            assert by_size(policy, found, ours, size), (found, ours)
            raise Cannot("a request of no size: ours says how many tokens it has")
    assert len(steps) >= len(played)
    state = compiled.initial
    for step in steps:
        state, decision = compiled.step(state, step.event)
        assert decision == step.decision
    (checked,) = (one for one in check_journal(journal, claims=()) if one.run == "run")
    checked.assert_all()


def shortest_runs(policy: Policy, **most: Any) -> dict[str, tuple[Played, ...]]:
    """A shortest run to each rule, those that are the same only once."""
    runs: dict[tuple[Any, ...], tuple[str, tuple[Played, ...]]] = {}
    for rule, run in explore(policy, **most).reachable.items():
        runs.setdefault(tuple(gist(s.event, s.decision) for s in run), (rule, run))
    return dict(runs.values())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_shortest_run_to_every_rule_of_every_example(path: Path, tmp_path: Path) -> None:
    policy, left = load(path), {}
    for number, (rule, run) in enumerate(shortest_runs(policy).items()):
        try:
            alike(policy, run, tmp_path / f"{number}.journal")
        except Cannot as reason:
            left[path.stem, rule] = str(reason).partition(":")[0]
    assert left == {place: why for place, why in CANNOT.items() if place[0] == path.stem}


def test_a_call_after_the_deadline_behind_a_tool_that_took_all_the_time(tmp_path: Path) -> None:
    policy = next(load(path) for path in EXAMPLES if path.stem == "grandchild_approval")
    compiled = compile(policy)
    search = e.Proposed("1.0", "search", "1.0")
    told = [
        e.RunStarted(0, "run"),
        e.CallRequested(0, "1", "main"),
        e.ModelReplied(0, "1", 1, "tool_calls", calls=(search,), usage=Usage(), ref="reply"),
        e.ToolRequested(0, "1.0"),
        e.ToolEnded(60_000, "1.0", result="1.0", ref="result"),
        e.CallRequested(60_000, "2", "main"),
    ]
    states, decisions = [compiled.initial], []
    for event in told:
        state, decision = compiled.step(states[-1], event)
        states.append(state)
        decisions.append(decision)
    played = [Played(*x, False) for x in zip(told, decisions, states, states[1:], strict=False)]
    assert "call.late.wall" in fired(policy, told)
    alike(policy, played, tmp_path / "run.journal")


@pytest.mark.parametrize("claim", ["always llm_calls <= 2", "always tool_iterations <= 1", "at_most 1 tool_call"])
def test_runs_that_refute_a_claim(claim: str, tmp_path: Path) -> None:
    policy = load(next(path for path in EXAMPLES if path.stem == "hard_stop"))
    claims = loads(f'policy "claim" lang 1\n\nverify "claimed" {claim}\n').claims
    (verdict,) = [v for v in prove(policy, claims=claims).verdicts if v.kind == "claim"]
    assert verdict.result == "refuted"
    alike(policy, verdict.simple or verdict.played, tmp_path / "run.journal")


def test_shortest_runs_of_drawn_policies(tmp_path: Path) -> None:
    done, left = 0, Counter[str]()

    @seed(1)
    @settings(
        max_examples=5, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(policies())
    def all_of(policy: Policy) -> None:
        nonlocal done
        for run in shortest_runs(policy, max_states=20_000).values():
            try:
                alike(policy, run, tmp_path / f"{done + left.total()}.journal")
                done += 1
            except Cannot as reason:
                left[str(reason)] += 1

    all_of()
    assert done >= max(12, 4 * left.total()), (done, left)
