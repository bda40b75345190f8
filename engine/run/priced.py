"""Can money be counted wherever it is limited? Checked before anything is called: uncounted money has no limit.

A run with a limit of its own notices a model without a price when it comes to it: for the model that it begins with
that is before its first call, but for one that it switches to in the midst of its work. One below it in a tree,
without such a limit, would not notice at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from engine.core.machine.plan import origin_of
from engine.core.policy import AgentRules, Agents, Fallback, Limit, Policy
from engine.run.errors import RunError
from engine.run.host import Host

if TYPE_CHECKING:
    from engine.run.agents import Agent


def all_priced(agents: Mapping[str, Agent], host: Host, policy: Policy, *, budget: bool = False) -> None:
    """Raises ``ValueError`` for a client that runs may call under a limit on cost, at no known price.

    ``agents`` are those of the driver. ``budget``: the host itself limits the cost, whatever the policy says.
    """
    blocks = [rules for rules in policy.agent if rules.name in agents]
    whole = _of_money(policy.limits)
    lines = {rules.name: line for rules in blocks if (line := _of_money(rules.limits))}
    if not (whole or budget or lines):
        return
    limiter = "a budget limits the cost" if budget else f"the cost is limited ({whole or next(iter(lines.values()))})"
    for agent in agents.values():
        if agent.client and (whole or budget or _may_nest(policy) or agent.name in lines):
            _check(agent.client, f"agent `{agent.name}` calls the model", host, policy, limiter)
    for name, line in _switches(policy, frozenset(agents)):
        if name in host.clients:
            _check(name, f"{line}: a run may switch to the client `{name}` and its model", host, policy, limiter)


def _of_money(limits: tuple[Limit, ...]) -> str:
    """Which of these limits the cost, as a rule is named; empty if none does."""
    lines = (origin_of(x.origin, f"limit {x.id}") for x in limits if x.resource == "cost" and x.max is not None)
    return next(lines, "")


def _may_nest(policy: Policy) -> bool:
    """May an agent be below another?"""
    depth = (policy.agents or Agents()).of("depth")
    return depth is None or depth > 1


def _switches(policy: Policy, agents: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The clients that runs may switch to, each with the rule that says so."""
    rules = [rules for rules in policy.agent if rules.name in agents]
    parts: tuple[Policy | AgentRules, ...] = (policy, *rules)
    for part in parts:
        for failure in part.failures:
            line = origin_of(failure.origin, f"on llm_failure {', '.join(sorted(failure.reasons))}")
            for step in failure.then:
                yield from ((name, line) for name in (step.clients if isinstance(step, Fallback) else ()))
        for threshold in part.thresholds:
            if threshold.client is not None:
                line = origin_of(threshold.origin, f"at {threshold.percent}% of {threshold.resource}")
                yield threshold.client, line


def _check(client: str, what: str, host: Host, policy: Policy, limiter: str) -> None:
    model = host.clients[client].model
    if all(price.model != model for price in policy.prices):
        raise RunError(f"{what} `{model}`, which has no price, and {limiter}: add it to `prices`")
