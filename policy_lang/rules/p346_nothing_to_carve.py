"""nothing to carve

What is carved for an agent is the limit per subtree in its own block. An agent without one gets no part of its own
and draws on the pool, like all agents where a resource is shared.

Why: one such agent can use up what was meant for all.

Bad:

    policy "team" lang 1
    limits {
      tokens  200k
    }
    agents {
      carve  tokens
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Good:

    policy "team" lang 1
    limits {
      tokens  200k
    }
    agents {
      carve  tokens
    }
    agent "explore" {
      llm_calls  6  then finalize
      tokens     40k
    }

Fix: none; how much each agent gets is yours to say.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.merge_agents import Agent
from policy_lang.rules.p345_no_pool import has_pool
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    agents = policy.agents
    for name, (how, place) in () if policy.broken else agents.pools.items():
        having = [agent for agent in agents.agents if has_pool(agent.limits, name)]
        if how != "carve" or not (having or has_pool(policy.merged.limits, name)):
            continue
        for agent in agents.agents:
            if agent not in having:
                _no_amount(name, agent, policy, report)
        if not agents.agents:
            report.warn(
                "P346",
                f"nothing says how much `{name}` an agent gets",
                place,
                "nothing is carved",
                help=f"limit `{name}` in the block of each agent; without an amount of its own it draws on the pool",
            )


def _no_amount(name: str, agent: Agent, policy: Subject, report: Report) -> None:
    report.warn(
        "P346",
        f"the agent `{agent.name}` has no amount of `{name}` that could be carved",
        policy.agents.pools[name][1],
        "it draws on the pool instead",
        Label(agent.span, f"no limit of `{name}` per subtree"),
        help=f"limit `{name}` in its block, or `share {name}`",
    )
