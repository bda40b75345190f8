"""What a policy says of the agents below a run: limits on the tree, pools they share, rules for each agent.

Plain data. How a tree spends is the ledger's business; which policy a child runs under is ``Policy.of_agent``'s.
"""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from engine.core.ladders import Count, Name, Origin, Part
from engine.core.statements import FailureRule, Limit, ResourceName, Threshold, ToolRule
from engine.core.vocabulary import POOLABLE, TREE_RESOURCES

TreeResourceName = Literal["children", "live_children", "depth", "concurrent"]


class TreeLimit(Part):
    """At most ``max`` (``None``: unlimited) of something that is counted of a tree.

    ``children``: agents ever spawned by one node. ``live_children``: those of them not yet closed. ``depth``: levels
    below the node; the tightest of its ancestors binds. ``concurrent``: children of one node that run at the same
    time; the rest queue.
    """

    resource: TreeResourceName
    max: Count | None
    locked: bool = False
    origin: Origin | None = None

    @model_validator(mode="after")
    def _something_runs(self) -> TreeLimit:
        if self.resource == "concurrent" and self.max == 0:
            raise ValueError("concurrent 0 would let no agent run: depth 0 allows none")
        return self


class Agents(Part):
    """Limits on the tree, and how children draw on their parent's pools: ``share`` where nothing is written."""

    limits: tuple[TreeLimit, ...] = ()
    share: tuple[ResourceName, ...] = ()
    carve: tuple[ResourceName, ...] = ()
    """A child's amount leaves the pool at its spawn, and what is unspent returns when it ends."""
    origin: Origin | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Agents:
        no_repeats("limit", [limit.resource for limit in self.limits])
        no_repeats("pool", [*self.share, *self.carve])
        for resource in (*self.share, *self.carve):
            if resource not in POOLABLE:
                raise ValueError(f"{resource} is no pool that children could draw on")
        return self

    def of(self, resource: TreeResourceName) -> int | None:
        """The maximum of one of them, its default where none is written; ``None`` is unlimited."""
        written = next((limit for limit in self.limits if limit.resource == resource), None)
        return written.max if written else TREE_RESOURCES[resource]


class AgentRules(Part):
    """What holds for every child named ``name``, on top of its parent's policy."""

    name: Name
    limits: tuple[Limit, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    failures: tuple[FailureRule, ...] = ()
    tools: tuple[ToolRule, ...] = ()
    origin: Origin | None = None

    @model_validator(mode="after")
    def _consistent(self) -> AgentRules:
        no_repeats("limit", [limit.id for limit in self.limits])
        no_repeats("rule for the failure", [reason for rule in self.failures for reason in rule.reasons])
        for limit in self.limits:
            if limit.scope == "thread":
                raise ValueError(f"the agent {self.name} has no thread: limit {limit.resource} per run or subtree")
        return self


def no_repeats(what: str, names: list[str]) -> None:
    """Raise ``ValueError`` for a name that stands twice."""
    known: set[str] = set()
    for name in names:
        if name in known:
            raise ValueError(f"the {what} {name} is written twice")
        known.add(name)
