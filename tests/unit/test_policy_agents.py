"""What a policy says of trees: `ask`, limits on the tree, rules of agents, and the policy that a child runs under."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from engine.core.policy import (
    AgentRules,
    Agents,
    Ask,
    Breaker,
    Detector,
    FailureRule,
    Fallback,
    Finalization,
    Finalize,
    Limit,
    Policy,
    Price,
    Retry,
    Stop,
    Threshold,
    ToolRule,
    TreeLimit,
)


def tree() -> Policy:
    """A policy with every part of a tree."""
    return Policy(
        name="support",
        limits=(
            Limit(resource="llm_calls", max=20, then=(Finalize(),)),
            Limit(resource="tool_iterations", max=5, then=(Ask(up_to=3, times=2), Stop())),
            Limit(resource="tokens", max=200_000),
            Limit(resource="tokens", scope="run", max=90_000),
            Limit(resource="tool_calls", scope="node", max=60),
            Limit(resource="llm_calls", scope="thread", max=99),
            Limit(resource="wall", max=60_000, counting_approvals=True),
            Limit(resource="attempt_wall", max=9_000),
        ),
        finalization=Finalization(tools="forbid"),
        thresholds=(Threshold(percent=80, resource="tokens", action="warn"),),
        failures=(
            FailureRule(reasons=("rate_limit", "timeout"), then=(Retry(times=3),)),
            FailureRule(reasons=("*",), then=(Stop(),)),
        ),
        breakers=(Breaker(glob="*", trips=(Detector(kind="same_args", n=3),)),),
        tools=(ToolRule(glob="shell", deny=True),),
        prices=(Price(model="m", input=1, output=1),),
        agents=Agents(
            limits=(TreeLimit(resource="children", max=4, locked=True), TreeLimit(resource="depth", max=2)),
            share=("tool_calls",),
            carve=("tokens",),
        ),
        agent=(
            AgentRules(
                name="explore",
                limits=(
                    Limit(resource="llm_calls", max=6, then=(Finalize(text="Report."),)),
                    Limit(resource="tokens", max=50_000),
                ),
                thresholds=(Threshold(percent=50, resource="tokens", action="warn"),),
                failures=(FailureRule(reasons=("rate_limit",), then=(Fallback(clients=("cheap",)),)),),
                tools=(ToolRule(glob="write_*", deny=True),),
            ),
        ),
    )


def test_json_both_ways_and_its_schema() -> None:
    policy = tree()
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    validator = Draft202012Validator(Policy.model_json_schema())
    data = json.loads(policy.model_dump_json())
    validator.validate(data)
    data["agents"]["limits"][0]["resource"] = "childs"
    assert not validator.is_valid(data)


def test_what_is_not_written_has_its_default() -> None:
    agents = Agents(limits=(TreeLimit(resource="depth", max=None), TreeLimit(resource="children", max=0)))
    maxima = (agents.of("children"), agents.of("live_children"), agents.of("depth"), agents.of("concurrent"))
    assert maxima == (0, None, None, 8)
    assert Agents().of("depth") == 3


# ---- fingerprints


def _with(part: Any, **changes: Any) -> Any:
    return type(part).model_validate({**dict(part), **changes})


def test_what_is_the_default_leaves_the_fingerprint_alone() -> None:
    bare = Policy(name="p", limits=(Limit(resource="tool_calls", max=6, then=(Ask(),)),))
    defaults = (TreeLimit(resource="concurrent", max=8), TreeLimit(resource="depth", max=3))
    same = [
        _with(bare, agents=Agents()),
        _with(bare, agents=Agents(limits=defaults, share=("tokens",))),
        _with(bare, agent=(AgentRules(name="idle"),)),
        _with(bare, limits=(Limit(resource="tool_calls", max=6, then=(Ask(up_to=6, times=1), Stop())),)),
    ]
    assert {p.fingerprint() for p in same} == {bare.fingerprint()}


def test_order_locks_and_distances_leave_the_fingerprint_alone() -> None:
    policy = tree()
    assert policy.agents
    block, limits = policy.agent[0], policy.agents.limits[::-1]
    unlocked = tuple(limit.model_copy(update={"locked": False}) for limit in limits)
    same = [
        _with(policy, agent=(_with(block, limits=block.limits[::-1]),)),
        _with(policy, agent=(_with(block, limits=[_with(limit, locked=True) for limit in block.limits]),)),
        _with(policy, agents=_with(policy.agents, limits=unlocked)),
        _with(
            policy,
            tools=[_with(rule, base=2) for rule in policy.tools],
            agent=[_with(block, tools=[_with(rule, base=2) for rule in block.tools])],
        ),
    ]
    assert {p.fingerprint() for p in same} == {policy.fingerprint()}


@pytest.mark.parametrize(
    "change",
    [
        {"agents": Agents(limits=(TreeLimit(resource="depth", max=2),))},
        {"agents": Agents(limits=(TreeLimit(resource="depth", max=None),))},
        {"agents": Agents(limits=(TreeLimit(resource="children", max=0),))},
        {"agents": Agents(carve=("tool_calls",))},
        {"agent": (AgentRules(name="a", limits=(Limit(resource="llm_calls", max=1),)),)},
        {"limits": (Limit(resource="tool_calls", max=6, then=(Ask(up_to=5),)),)},
        {"limits": (Limit(resource="tool_calls", max=6, then=(Ask(times=2),)),)},
        {"limits": (Limit(resource="tool_calls", max=6, then=(Ask(),)), Limit(resource="wall", max=9))},
        {
            "limits": (
                Limit(resource="tool_calls", max=6, then=(Ask(),)),
                Limit(resource="wall", max=9, counting_approvals=True),
            )
        },
    ],
)
def test_every_change_of_meaning_has_a_fingerprint_of_its_own(change: dict[str, Any]) -> None:
    policy = Policy(name="p", limits=(Limit(resource="tool_calls", max=6, then=(Ask(),)),))
    others = [{"agents": Agents(limits=(TreeLimit(resource="depth", max=1),))}, {}]
    known = {_with(policy, **other).fingerprint() for other in others}
    assert _with(policy, **change).fingerprint() not in known


def test_an_exception_in_a_block_is_one_of_the_same_file_as_the_denial_it_lifts() -> None:
    deny, allow = ToolRule(glob="db_*", deny=True), ToolRule(glob="db_read", allow=True)
    here = Policy(name="p", tools=(deny,), agent=(AgentRules(name="a", tools=(allow,)),))
    base = _with(here, tools=[_with(deny, base=1)])
    assert here.fingerprint() != base.fingerprint()


# ---- the policy of a child


def test_a_child_has_its_parents_limits_of_one_run_and_its_own_block() -> None:
    child = tree().of_agent("explore")
    assert {limit.id: limit.max for limit in child.limits} == {
        "llm_calls": 6,
        "tool_iterations": 5,
        "tokens per run": 90_000,
        "tokens": 50_000,
        "attempt_wall": 9_000,
    }
    assert child.name == "support/explore"
    assert next(limit for limit in child.limits if limit.id == "llm_calls").then == (Finalize(text="Report."),)


def test_a_childs_rules_are_nearer_and_its_tools_and_thresholds_more() -> None:
    parent, child = tree(), tree().of_agent("explore")
    assert [(rule.reasons, rule.then[0].do) for rule in child.failures] == [
        (("timeout",), "retry"),
        (("*",), "stop"),
        (("rate_limit",), "fallback"),
    ]
    assert [rule.glob for rule in child.tools] == ["shell", "write_*"]
    assert [threshold.percent for threshold in child.thresholds] == [80, 50]
    for part in ("finalization", "breakers", "prices", "agents", "agent"):
        assert getattr(child, part) == getattr(parent, part)


def test_a_child_that_no_block_names_has_its_parents_rules() -> None:
    parent, child = tree(), tree().of_agent("writer")
    assert (child.failures, child.tools, child.thresholds) == (parent.failures, parent.tools, parent.thresholds)
    assert [limit.id for limit in child.limits] == ["llm_calls", "tool_iterations", "tokens per run", "attempt_wall"]
    assert child.limits[0] == parent.limits[0]


def test_an_agent_below_one_of_its_own_name_gets_its_block_once() -> None:
    child = tree().of_agent("explore")
    grandchild = child.of_agent("explore")
    assert grandchild.fingerprint() == child.of_agent("writer").of_agent("explore").fingerprint()
    assert (grandchild.tools, grandchild.thresholds) == (child.tools, child.thresholds)
    assert {limit.id for limit in grandchild.limits} == {limit.id for limit in child.limits}


# ---- what is refused

_TREE = {"resource": "depth", "max": 2}
_WRONG: dict[str, tuple[type, dict[str, Any]]] = {
    "nobody is asked for more llm_calls": (Limit, {"resource": "llm_calls", "max": 5, "then": [{"do": "ask"}]}),
    "nobody is asked for more wall": (Limit, {"resource": "wall", "max": 5, "then": [{"do": "ask"}]}),
    "attempt_wall has no ladder": (Limit, {"resource": "attempt_wall", "max": 5, "then": [{"do": "ask"}]}),
    "a ladder asks in one step": (Limit, {"resource": "tokens", "max": 5, "then": [{"do": "ask"}, {"do": "ask"}]}),
    "only wall can count approvals": (Limit, {"resource": "tokens", "max": 5, "counting_approvals": True}),
    "up_to\n.*greater than or equal to 1": (Ask, {"up_to": 0}),
    "times\n.*greater than or equal to 1": (Ask, {"times": 0}),
    "concurrent 0 would let no agent run": (TreeLimit, {"resource": "concurrent", "max": 0}),
    "limit depth is written twice": (Agents, {"limits": [_TREE, _TREE]}),
    "pool tokens is written twice": (Agents, {"share": ["tokens"], "carve": ["tokens"]}),
    "wall is no pool": (Agents, {"share": ["wall"]}),
    "attempt_wall is no pool": (Agents, {"carve": ["attempt_wall"]}),
    "agent a is written twice": (Policy, {"name": "p", "agent": [{"name": "a"}, {"name": "a"}]}),
    "limit tokens is written twice": (AgentRules, {"name": "a", "limits": [{"resource": "tokens", "max": 1}] * 2}),
    "failure timeout is written twice": (
        AgentRules,
        {"name": "a", "failures": [{"reasons": ["timeout"], "then": [{"do": "stop"}]}] * 2},
    ),
    "the agent a has no thread": (
        AgentRules,
        {"name": "a", "limits": [{"resource": "tokens", "scope": "thread", "max": 1}]},
    ),
    "needs a price table": (
        Policy,
        {"name": "p", "agent": [{"name": "a", "limits": [{"resource": "cost", "max": 1}]}]},
    ),
    "Extra inputs are not permitted": (AgentRules, {"name": "a", "breakers": []}),
}


@pytest.mark.parametrize("message", _WRONG)
def test_what_it_refuses(message: str) -> None:
    model, data = _WRONG[message]
    with pytest.raises(ValidationError, match=message):
        model(**data)


def test_what_agents_blocks_name_is_what_the_host_needs() -> None:
    consult, fallback = {"do": "consult", "name": "chooses"}, {"do": "fallback", "clients": ["large"]}
    block = AgentRules.model_validate(
        {
            "name": "a",
            "limits": [{"resource": "tokens", "max": 9, "then": [consult]}],
            "failures": [{"reasons": ["timeout"], "then": [fallback]}],
            "thresholds": [{"percent": 50, "resource": "tokens", "action": "use", "client": "small"}],
        }
    )
    policy = Policy(name="p", agent=(block,))
    assert policy.consultants() == {"chooses"}
    assert policy.resolvers() == ("chooses",)
    assert policy.clients() == ("large", "small")
