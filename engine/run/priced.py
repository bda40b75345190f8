"""Can money be counted wherever a tree limits it? Checked before anything is called: uncounted money has no limit.

A run with a limit of its own notices a model without a price by itself. One below it, without such a limit, would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.core.policy import Agents, Limit, Policy
from engine.run.host import Host

if TYPE_CHECKING:
    from engine.run.agents import Agent


def all_priced(agents: Mapping[str, Agent], host: Host, policy: Policy, *, budget: bool = False) -> None:
    """Raises ``ValueError`` for a client that runs of the tree would call under a limit on cost, at no known price.

    ``budget``: the host itself limits the cost, whatever the policy says.
    """
    blocks = {rules.name for rules in policy.agent if any(map(_of_money, rules.limits)) and rules.name in agents}
    whole = budget or any(map(_of_money, policy.limits))
    depth = (policy.agents or Agents()).of("depth")
    below_too = depth is None or depth > 1
    if not agents or not (whole or blocks):
        return
    limiter = "a budget" if budget else "the policy"
    for agent in agents.values():
        if agent.client and (whole or below_too or agent.name in blocks):
            _check(agent.client, f"agent `{agent.name}` calls the model", host, policy, limiter)
    for name in policy.clients():
        if name in host.clients:
            _check(name, f"a run may switch to the client `{name}` and its model", host, policy, limiter)


def _of_money(limit: Limit) -> bool:
    return limit.resource == "cost" and limit.max is not None


def _check(client: str, what: str, host: Host, policy: Policy, limiter: str) -> None:
    model = host.clients[client].model
    if all(price.model != model for price in policy.prices):
        raise ValueError(f"{what} `{model}`, which has no price, and {limiter} limits the cost: add it to `prices`")
