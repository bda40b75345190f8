"""The worst case of a policy in numbers: each is reached by a run, and none is larger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from engine.core import decisions as d
from engine.core.ladders import Ask, Extend, Fallback, Finalize, Retry
from engine.core.policy import AgentRules, Agents, Policy, TreeLimit
from engine.core.statements import FailureRule, Limit, Price, ToolRule
from engine.core.step import compile
from engine.testing.drawn_policies import error_policies
from engine.testing.drawn_worlds import error_worlds
from engine.testing.host import Host
from engine.testing.scripts import World
from engine.verify.sheet import Line, Sheet, sheet
from engine.verify.verdicts import Budget


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
    assert (most(found)["llm_calls"], most(found)["tool_iterations"], most(found)["llm_attempts"]) == (50, 40, None)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(error_policies(4), error_worlds())
def test_no_run_uses_more(policy: Policy, world: World) -> None:
    found = sheet(policy, Budget(states=20_000, seconds=5.0))
    if found.cut:
        return
    host = Host(compile(policy), world)
    host.run()
    last = host.steps[-1].decision
    if not isinstance(last, d.End):
        return
    used, bounds = last.outcome.used, most(found)
    assert bounds["llm_calls"] is None or used.llm_calls <= bounds["llm_calls"]
    assert bounds["tool_iterations"] is None or used.tool_iterations <= bounds["tool_iterations"]
