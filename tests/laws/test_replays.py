"""Runs that a search finds, played on ``step``: most of a simple world can be, and the machine stands where it was."""

from __future__ import annotations

import random

from test_explore_grid import failing, together

from engine.core.machine.machine import Machine, Phase, Sort
from engine.core.machine.monitors import Laws
from engine.core.machine.plan import plans_of
from engine.core.policy import Extend, Finalize, Limit, Policy, ToolRule
from engine.core.step import Compiled, compile
from engine.verify.explore import Search
from engine.verify.observe import ends_step
from engine.verify.prove import PLAIN
from engine.verify.replay import NoReplay, grouped, replayed
from engine.verify.traces import TraceStep, trace
from engine.verify.world import around

SIMPLE = (
    Policy(name="six", limits=(Limit(resource="llm_calls", max=6, then=(Finalize(),)),)),
    Policy(
        name="rounds",
        limits=(
            Limit(resource="tool_iterations", max=2, then=(Extend(by=1), Finalize())),
            Limit(resource="llm_attempts", max=7),
        ),
    ),
    Policy(
        name="asking",
        limits=(Limit(resource="llm_calls", max=4), Limit(resource="tool_calls", max=3)),
        tools=(ToolRule(glob="pay", ask=True), ToolRule(glob="shell", deny=True)),
    ),
    Policy(name="tokens", limits=(Limit(resource="tokens", max=900, reserve=90, then=(Finalize(),)),)),
)


def runs(policy: Policy, compiled: Compiled, many: int) -> list[tuple[dict[str, int], tuple[TraceStep, ...]]]:
    """Some states of a simple world by the names of their variables, each with a shortest run to it."""
    machine = around(compiled.machine, policy, PLAIN)
    search = Search(machine, Laws((), (), plans_of(policy)), 2, apart=True)
    search.run(20_000, float("inf"))
    names = [v.name for v in machine.variables if v.sort is not Sort.METER]
    states = [state for state, origin in search.seen.items() if origin is not None]
    chosen = random.Random(1).sample(states, min(many, len(states)))
    found = [(dict(zip(names, s, strict=False)), trace(machine, search.path(search.seen[s]))) for s in chosen]  # type: ignore[arg-type]
    return [(state, path) for state, path in found if ends_step(path[-1].event, path[-1].effect)]


def differs(machine: Machine, found: dict[str, int], played: tuple[int, ...]) -> list[str]:
    kept = [(v.name, value) for v, value in zip(machine.variables, played, strict=True) if v.sort is not Sort.METER]
    # Where only people are awaited there is nothing to stop: ``step`` ends such a run at once.
    ended = found["phase"] == Phase.STOPPING and dict(kept)["phase"] == Phase.ENDED
    return [name for name, value in kept if found[name] != value and not (ended and name == "phase")]


def test_every_run_of_a_simple_policy_is_played_and_leads_where_the_search_was() -> None:
    for policy in SIMPLE:
        compiled = compile(policy)
        for state, path in runs(policy, compiled, 60):
            played = replayed(compiled, path)
            assert differs(compiled.machine, state, played[-1].after.vars) == [], (policy.name, [s.says for s in path])


def test_most_runs_of_any_policy_are_played() -> None:
    chosen = random.Random(4)
    same = other = 0
    for policy in (*together(12, 2, chosen), *failing(12, chosen)):
        compiled = compile(policy)
        for state, path in runs(policy, compiled, 8):
            try:
                played = replayed(compiled, path)
            except NoReplay:
                other += 1
                continue
            if differs(compiled.machine, state, played[-1].after.vars):
                other += 1
            else:
                same += 1
    assert same > 60
    assert same > other, (same, other)


def test_what_belongs_to_one_event_is_one_group() -> None:
    policy = SIMPLE[1]
    compiled = compile(policy)
    for _, path in runs(policy, compiled, 30):
        groups = grouped(path)
        assert [step for group in groups for step in group] == list(path)
        assert all(not ends_step(s.event, s.effect) for group in groups for s in group[:-1])
