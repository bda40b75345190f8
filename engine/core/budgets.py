"""What a node of a tree may use and spawn, read off its policy: the part of a policy that the ledger knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from engine.core import draws
from engine.core.agents import Agents
from engine.core.machine.plan import Plan, origin_of, plans_of
from engine.core.policy import Finalize, Policy
from engine.core.state import NO_TIME
from engine.core.vocabulary import TREE_RESOURCES


class Ceiling(Struct, frozen=True, gc=False):
    """One maximum of a node. ``kept`` is what the node keeps of it for its own end, ``limit`` the limit's id.

    ``counting``: a wall that goes on while people are awaited.
    """

    limit: str
    resource: str
    scope: str
    maximum: int
    kept: int = 0
    because: str = ""
    counting: bool = False


def _default(resource: str) -> Ceiling:
    maximum = TREE_RESOURCES[resource]
    return Ceiling(resource, resource, "node", NO_TIME if maximum is None else maximum, because=f"default: {resource}")


class Budget(Struct, frozen=True, gc=False):
    """The ceilings of one node; ``carve`` are the resources whose amounts leave its pools when a child is spawned.

    What is unlimited has a maximum that is never reached (``NO_TIME``).
    """

    pools: tuple[Ceiling, ...] = ()
    wall: Ceiling | None = None
    depth: Ceiling = _default("depth")
    concurrent: Ceiling = _default("concurrent")
    children: Ceiling = _default("children")
    live_children: Ceiling = _default("live_children")
    carve: tuple[str, ...] = ()


def budget_of(policy: Policy) -> Budget:
    """The budget of a node under this policy; of a root also what its thread allows."""
    plans = plans_of(policy)
    pools = tuple(
        Ceiling(p.limit.id, p.resource, p.limit.scope or "", p.maximum, _kept(p), p.origin)
        for p in plans
        if p.limit.scope in ("subtree", "thread", "node") and p.resource in draws.RESOURCES
    )
    walls = [
        Ceiling(p.limit.id, "wall", "subtree", p.maximum, 0, p.origin, _counts_approvals(p))
        for p in plans
        if p.resource == "wall" and p.limit.scope == "subtree"
    ]
    wall = min(walls, key=lambda ceiling: ceiling.maximum, default=None)
    return Budget(pools, wall, **_tree_limits(policy.agents))


def as_given(budget: Budget, given: Mapping[str, tuple[str, int]]) -> Budget:
    """The budget with the maxima that a node was given at its spawn, by the ids of its limits."""
    pools = (structs.replace(c, maximum=given.get(c.limit, (c.resource, c.maximum))[1]) for c in budget.pools)
    wall = budget.wall
    if wall is not None:
        wall = structs.replace(wall, maximum=given.get(wall.limit, ("wall", wall.maximum))[1])
    return structs.replace(budget, pools=tuple(pools), wall=wall)


def _kept(plan: Plan) -> int:
    """What the owner keeps for its own end: the reserve, or the call that its ladder makes the final one."""
    finalizes = any(isinstance(step, Finalize) for step in plan.steps)
    if plan.resource in ("llm_calls", "llm_attempts"):
        return 1 if finalizes else 0
    return plan.limit.reserve if finalizes else 0


def _counts_approvals(plan: Plan) -> bool:
    return plan.limit.counting_approvals


def _tree_limits(agents: Agents | None) -> dict[str, Any]:
    if agents is None:
        return {}
    found: dict[str, Any] = {"carve": tuple(agents.carve)}
    for limit in agents.limits:
        maximum = NO_TIME if limit.max is None else limit.max
        origin = origin_of(limit.origin, limit.resource)
        found[limit.resource] = Ceiling(limit.resource, limit.resource, "node", maximum, because=origin)
    return found
