"""What a node of a tree may use and spawn, read off its policy: the part of a policy that the ledger knows."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from engine.core import draws
from engine.core.machine.plan import Plan, origin_of, plans_of
from engine.core.policy import Finalize, Policy

DEFAULT_DEPTH: Final = 3
DEFAULT_CONCURRENT: Final = 8


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


class Budget(Struct, frozen=True, gc=False):
    """The ceilings of one node; ``carve`` are the resources whose amounts leave its pools when a child is spawned."""

    pools: tuple[Ceiling, ...] = ()
    wall: Ceiling | None = None
    depth: Ceiling = Ceiling("depth", "depth", "node", DEFAULT_DEPTH, because="default: depth")
    concurrent: Ceiling = Ceiling("concurrent", "concurrent", "node", DEFAULT_CONCURRENT, because="default: concurrent")
    children: Ceiling | None = None
    live_children: Ceiling | None = None
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
    return Budget(pools, wall, **_tree_limits(policy))


def _kept(plan: Plan) -> int:
    """What the owner keeps for its own end: the reserve, or the call that its ladder makes the final one."""
    finalizes = any(isinstance(step, Finalize) for step in plan.steps)
    if plan.resource in ("llm_calls", "llm_attempts"):
        return 1 if finalizes else 0
    return plan.limit.reserve if finalizes else 0


def _counts_approvals(plan: Plan) -> bool:
    return plan.limit.counting_approvals


def _tree_limits(policy: Policy) -> dict[str, Any]:
    agents = policy.agents
    if agents is None:
        return {}
    found: dict[str, Any] = {"carve": tuple(agents.carve)}
    for limit in agents.limits:
        if limit.max is not None:
            origin = origin_of(limit.origin, limit.resource)
            found[limit.resource] = Ceiling(limit.resource, limit.resource, "node", limit.max, because=origin)
    return found
