"""From a policy to its picture: search, then what is told of it. ``MOST_AGENTS`` bounds the time."""

from __future__ import annotations

from typing import Final

from engine.core.policy import Policy
from policy_lang.graph.life import life
from policy_lang.graph.picture import Picture
from policy_lang.graph.searched import reach
from policy_lang.graph.tree import tree

MOST_AGENTS: Final = 8
"""Agents whose own states are searched; of the rules of others nobody knows whether they act."""


def picture(policy: Policy) -> Picture:
    """The picture of a policy; the same policy always gives the same."""
    names = [rules.name for rules in policy.agent[:MOST_AGENTS]]
    own, *others = reach([policy, *(policy.of_agent(name) for name in names)])
    reached = dict(zip(names, others, strict=True))
    boxes, arrows = life(policy, own)
    cut = next((found.cut for found in (own, *others) if found.cut), "")
    if not cut and len(policy.agent) > MOST_AGENTS:
        cut = f"only the first {MOST_AGENTS} agents were searched"
    return Picture(policy.name, boxes, arrows, tree(policy, reached), cut)
