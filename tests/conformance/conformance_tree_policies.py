"""The budgets of a case about trees as a policy, and the words of its original in ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance_cases import Case

from engine.core.agents import AgentRules, Agents, TreeLimit
from engine.core.policy import Limit, Policy

SCALE = 1_000
PLENTY = 10**12
STATUS = {"done": "completed", "incomplete": "incomplete", "interrupted": "cancelled", "error": "failed"}
LIMITS = {
    "maxTurns": "llm_calls",
    "maxTokens": "tokens",
    "maxToolCalls": "tool_calls",
    "maxWallMs": "wall",
    "maxChildren": "children",
    "maxDepth": "depth",
    "maxConcurrent": "concurrent",
}
OF_TREES = ("maxChildren", "maxDepth", "maxConcurrent")

Ladder = tuple[Any, ...]


def budgets_of(case: Case) -> Iterator[dict[str, int]]:
    yield from (agent.get("budget", {}) for agent in case["config"].get("agents", {}).values())
    yield from (op.get("budget", {}) for op in case["script"])


def policy_of_tree(case: Case, ladder: Ladder = ()) -> Policy:
    """The policy that says what the agents' budgets say, and what spawns give of children, depth and concurrency.

    ``ladder``: what happens where an agent's own limits are reached.
    """
    of_tree = {LIMITS[k]: v for budget in budgets_of(case) for k, v in budget.items() if k in OF_TREES}
    rules = [AgentRules(name=name, limits=_block(case, name, ladder)) for name in case["config"].get("agents", {})]
    return Policy(
        name="case",
        agents=Agents(limits=tuple(TreeLimit(resource=k, max=v) for k, v in of_tree.items())),
        agent=tuple(rules),
    )


def _block(case: Case, name: str, ladder: Ladder) -> tuple[Limit, ...]:
    agent = case["config"]["agents"][name]
    given = dict(agent.get("budget", {}))
    for op in case["script"]:  # the turns that a spawn gives
        if op["op"] == "spawn" and op["agent"] == name and "maxTurns" in op.get("budget", {}):
            given["maxTurns"] = op["budget"]["maxTurns"]
    lifetime = agent.get("lifetime", False)
    limits = [
        Limit(
            resource=LIMITS[k],
            max=v * (SCALE if k == "maxTokens" else 1),
            scope="node" if k == "maxTurns" and lifetime else None,
            then=ladder,
        )
        for k, v in given.items()
        if k not in OF_TREES
    ]
    return tuple(limits)
