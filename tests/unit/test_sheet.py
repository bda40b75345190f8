"""The worst case of a policy in numbers: each is reached by a run, and none is larger."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core import decisions as d
from engine.core import events as e
from engine.core.ladders import Ask, Consult, Extend, Fallback, Finalize, Retry
from engine.core.messages import Usage
from engine.core.policy import AgentRules, Agents, Policy, TreeLimit
from engine.core.statements import FailureRule, Limit, Price, ToolRule
from engine.core.step import compile
from engine.testing import policies, worlds
from engine.testing.drawn_policies import error_policies
from engine.testing.drawn_worlds import error_worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.sheet import Line, Sheet, sheet
from engine.verify.verdicts import Budget
from policy_lang import load

EXAMPLES = sorted((Path(__file__).parents[2] / "spec_examples").glob("*/*.policy"))


def limit(resource: Any, maximum: int, *then: Any, **more: Any) -> Limit:
    return Limit(resource=resource, max=maximum, then=then, **more)


def p(*limits: Limit, **more: Any) -> Policy:
    return Policy(name="p", limits=limits, **more)


def most(found: Sheet) -> dict[str, int | None]:
    return {line.resource: line.most for line in found.run}


def line(found: Sheet, what: str) -> Line:
    return next(line for line in (*found.run, *found.clients, *found.tree) if line.what == what)


RETRIES = FailureRule(reasons=("*",), then=(Retry(times=2), Fallback(clients=("spare",))))


@pytest.mark.parametrize(
    ("policy", "calls", "requests", "rounds"),
    [
        (p(), None, None, None),
        (p(limit("llm_calls", 6), limit("tool_iterations", 5, Finalize())), 6, 6, 5),
        (p(limit("llm_calls", 6, Finalize()), limit("tool_iterations", 9)), 6, 6, 5),
        (p(limit("llm_calls", 4), failures=(RETRIES,)), 4, 12, 4),
        (p(limit("llm_calls", 4), limit("llm_attempts", 7), failures=(RETRIES,)), 4, 7, 4),
        (p(limit("llm_calls", 9), limit("tool_iterations", 2, Extend(by=5))), 9, 9, 4),
        (p(limit("llm_calls", 9), limit("tool_iterations", 2, Ask(up_to=1, times=2))), 9, 9, 4),
    ],
)
def test_the_longest_run_is_counted(
    policy: Policy, calls: int | None, requests: int | None, rounds: int | None
) -> None:
    found = most(sheet(policy))
    assert (found["llm_calls"], found["llm_attempts"], found["tool_iterations"]) == (calls, requests, rounds)


def test_a_line_bounds_what_would_be_more_without_it() -> None:
    found = sheet(p(limit("llm_calls", 6, Finalize()), limit("tool_iterations", 3), limit("tool_calls", 4)))
    assert line(found, "model calls").by == ("limit llm_calls",)
    assert line(found, "rounds of tools").by == ("limit tool_iterations",)
    assert line(found, "tool executions") == Line("tool executions", "tool_calls", 4, ("limit tool_calls",))


def test_where_two_lines_bound_alike_the_one_on_the_resource_is_named() -> None:
    found = sheet(p(limit("llm_calls", 4), limit("llm_attempts", 4)))
    assert line(found, "model calls").by == ("limit llm_calls",)
    assert line(found, "requests to models").by == ("limit llm_attempts",)


def test_amounts_are_their_limits_with_all_that_ladders_grant() -> None:
    price = Price(model="m", input=2_000_000, output=8_000_000)
    found = sheet(p(limit("tokens", 1000, Extend(by=500), Ask(up_to=100, times=3)), prices=(price,)))
    assert most(found)["tokens"] == 1800
    assert most(found)["input_tokens"] == most(found)["output_tokens"] == 1800
    assert line(found, "cost") == Line("cost", "cost", 14_400, ("limit tokens",), "all tokens at the highest price")
    assert found.in_flight == (1, 1)


def test_the_smallest_of_several_limits_counts() -> None:
    found = sheet(p(limit("tokens", 900, scope="run"), limit("tokens", 500, scope="thread")))
    assert (most(found)["tokens"], line(found, "tokens").by) == (500, ("limit tokens per thread",))


def test_time_is_its_limit_or_what_all_that_happens_may_take() -> None:
    assert most(sheet(p(limit("wall", 60_000))))["wall"] == 60_000
    timed = (ToolRule(glob="*", timeout=5_000),)
    calls = limit("llm_calls", 3), limit("attempt_wall", 10_000)
    assert most(sheet(p(*calls, tools=timed)))["wall"] == 3 * 10_000 + 3 * 5_000
    assert line(sheet(p(*calls)), "time").why.startswith("a tool may take any time")
    assert line(sheet(p(tools=timed)), "time").why.startswith("nothing bounds how often the model is asked")
    asked = (*timed, ToolRule(glob="mail", ask=True))
    assert line(sheet(p(*calls, tools=asked)), "time").why.startswith("people, functions of the host")


def test_a_client_of_a_fallback_has_a_request_less() -> None:
    found = sheet(p(limit("llm_calls", 4), failures=(RETRIES,)))
    assert line(found, "requests to spare").most == 11


def test_trees_are_counted_level_by_level() -> None:
    def tree(**limits: int) -> Agents:
        return Agents(limits=tuple(TreeLimit(resource=r, max=n) for r, n in limits.items()))  # type: ignore[arg-type]

    found = sheet(p(agents=tree(depth=2, children=3, concurrent=2)))
    assert [row.most for row in found.tree] == [2, 3, 2, 2 + 4, 3 + 9]
    assert found.in_flight == (1, 7)
    endless = sheet(p(agents=tree(depth=2)))
    assert line(endless, "agents of a tree in all").most is None
    assert line(endless, "agents of a tree at the same time").most == 8 + 64
    assert line(sheet(p(agents=tree(depth=0))), "agents of a tree in all").most == 0
    assert sheet(p()).tree == ()


def test_an_agent_has_its_own_numbers() -> None:
    policy = p(limit("llm_calls", 9), agent=(AgentRules(name="explore", limits=(limit("llm_calls", 2),)),))
    assert (most(sheet(policy))["llm_calls"], most(sheet(policy, agent="explore"))["llm_calls"]) == (9, 2)


def test_limits_too_large_to_search_are_their_own_numbers() -> None:
    found = sheet(p(limit("llm_calls", 50), limit("tool_iterations", 40)), Budget(states=100))
    assert found.cut == "stopped after 100 states"
    assert (most(found)["llm_calls"], most(found)["tool_iterations"], most(found)["llm_attempts"]) == (50, 40, 50)
    more = p(limit("llm_calls", 50), limit("tool_iterations", 60), failures=(RETRIES,))
    found = sheet(more, Budget(states=100))
    assert (most(found)["tool_iterations"], most(found)["llm_attempts"]) == (50, 150)
    assert line(found, "requests to models").why == "at most 3 for each call"
    assert line(found, "requests to spare").most == 149


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(error_policies(4))
def test_what_the_limits_come_to_is_no_less_than_the_longest_run(policy: Policy) -> None:
    exact, told = sheet(policy, Budget(states=20_000, seconds=5.0)), sheet(policy, Budget(states=1))
    if exact.cut:
        return
    for one, other in zip(exact.run[:4], told.run[:4], strict=True):
        assert other.most is None or (one.most is not None and one.most <= other.most), (one, other)


def test_people_may_take_any_time() -> None:
    timed, calls = (ToolRule(glob="*", timeout=5_000),), (limit("llm_calls", 3), limit("attempt_wall", 10_000))
    asked = p(*calls, limit("tool_iterations", 2, Ask(up_to=2)), tools=timed)
    consulted = p(*calls, tools=timed, failures=(FailureRule(reasons=("*",), then=(Consult(name="who"),)),))
    for policy in (asked, consulted):
        assert line(sheet(policy), "time").why.startswith("people, functions of the host")
    mail = (ToolRule(glob="mail", ask=True),)
    stands = "and 5s to cancel what is in flight; it stands still while only people are awaited"
    assert line(sheet(p(limit("wall", 60_000), tools=mail)), "time").why == stands
    goes_on = p(limit("wall", 60_000, counting_approvals=True), tools=mail)
    assert line(sheet(goes_on), "time").why == "and 5s to cancel what is in flight"


def test_further_attempts_of_a_tool_are_said() -> None:
    retried = (ToolRule(glob="x*", retry=Retry(times=1)), ToolRule(glob="xy", retry=Retry(times=3)))
    found = sheet(p(limit("llm_calls", 3), limit("tool_calls", 4), tools=retried))
    assert line(found, "tool executions").why == "one that fails may be tried 3 times more (tool xy)"


def plain(world: World) -> World:
    """Without what comes on top: requests and tools that a host repeats by itself, pauses, what tools report."""
    turns = (
        replace(
            turn,
            lost=0,
            finish="stop" if turn.finish == "pause" else turn.finish,
            tools=tuple(replace(tool, restarts=0, usage=None) for tool in turn.tools),
        )
        for turn in world.turns
    )
    return replace(world, turns=tuple(turns))


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.one_of(error_policies(4), policies()), st.one_of(error_worlds(), worlds()).map(plain))
def test_no_run_uses_more(policy: Policy, world: World) -> None:
    found = sheet(policy, Budget(states=20_000, seconds=5.0))
    if not found.cut:
        held(found, policy, world)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_run_of_an_example_uses_more(path: Path) -> None:
    policy = load(path)
    found = sheet(policy)

    @settings(max_examples=40, suppress_health_check=list(HealthCheck))
    @given(st.one_of(error_worlds(), worlds()).map(plain))
    def drawn(world: World) -> None:
        held(found, policy, world)

    drawn()


def held(found: Sheet, policy: Policy, world: World) -> None:
    """Hold a run of this world to the sheet."""
    host = Host(compile(policy), world)
    host.run()
    (last,) = (step.decision for step in host.steps if isinstance(step.decision, d.End))
    used, bounds = last.outcome.used, most(found)
    in_flight = max((x.event.usage for x in host.steps if getattr(x.event, "usage", None)), key=_size, default=Usage())
    calls = Counter(x.decision.client for x in host.steps if isinstance(x.decision, d.Call))
    started = sum(isinstance(x.event, e.ToolRequested) and isinstance(x.decision, d.Execute) for x in host.steps)
    for resource, much in (
        ("llm_calls", used.llm_calls),
        ("llm_attempts", calls.total()),
        ("tool_iterations", used.tool_iterations),
        ("tool_calls", started),
        ("wall", host.at - host.steps[0].event.at - 5_000),
        ("tokens", used.tokens - _size(in_flight)),
        ("input_tokens", used.input_tokens - _size(in_flight)),
        ("output_tokens", used.output_tokens - _size(in_flight)),
    ):
        allowed = bounds[resource]
        assert allowed is None or much <= allowed, (resource, much, allowed)
    for row in found.clients:
        assert row.most is None or calls[row.what.removeprefix("requests to ")] <= row.most, row


def _size(usage: Usage) -> int:
    return usage.input + usage.output
