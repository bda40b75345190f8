"""What a ledger might show a run, drawn by a seed: some of it likely, some of it unkind, all of it well formed."""

from __future__ import annotations

from random import Random

from engine.core.policy import Policy
from engine.core.state import NO_TIME, LimitHit, Pools, Refusal
from engine.core.vocabulary import RESOURCES, limit_name

OWNER = "r"
"""The ancestor whose limits are shown."""


def drawn_pools(draw: Random, policy: Policy, at: int, *, tools_above: bool = True) -> Pools:
    """``Pools`` for a run under ``policy`` at a moment: others come and go, ancestors refuse now and then.

    ``tools_above``: an ancestor limits tool calls, which is so for all of a run or never.
    """
    shared = [x for x in policy.limits if (x.scope or RESOURCES[x.resource].scope) != "run" and x.max is not None]
    names = [(limit_name(x.resource, x.scope), x.max or 0) for x in shared if x.resource != "wall"]
    others = tuple((name, draw.randint(1, 3 + most)) for name, most in names if draw.random() < 0.5)
    aside = tuple((name, draw.randint(1, taken)) for name, taken in others if draw.random() < 0.3)
    tools = draw.choice([0, 1, 2, 5]) if tools_above else None
    deadline = draw.choice([NO_TIME, NO_TIME, NO_TIME, at + draw.choice([1, 40, 5_000])])
    return Pools(
        others=others,
        aside=aside,
        refused=refusal("tokens", 9) if draw.random() < 0.05 else None,
        rounds=refusal("tool_iterations", 4) if draw.random() < 0.05 else None,
        tools=tools,
        tools_limit=None if tools is None else refusal("tool_calls", 5, 5 - tools),
        output=draw.choice([None, None, 1, 50, 4_096]),
        deadline=deadline,
        wall=None if deadline == NO_TIME else refusal("wall", 100),
        opened=0 if any(x.resource == "wall" for x in shared) else None,
    )


def refusal(resource: str, maximum: int, used: int | None = None) -> Refusal:
    """A limit per subtree of the ancestor; reached, where nothing else is said."""
    hit = LimitHit(resource, "subtree", OWNER, maximum if used is None else used, maximum)
    return Refusal(hit, f"above.policy:{maximum}")
