"""more for an agent than there is

What an agent uses is used of the pools of all above it as well. A budget that is larger than what the policy allows
the whole tree can never be used up: the tree's limit ends the agent first.

Why: the agent's own ladder, with its instruction for the last answer, is never taken.

Bad:

    policy "team" lang 1
    limits {
      tokens  100k  reserve 4k  then finalize
    }
    agent "explore" {
      tokens  200k  reserve 4k  then finalize "Report what you found."
    }

Good:

    policy "team" lang 1
    limits {
      tokens  100k  reserve 4k  then finalize
    }
    agent "explore" {
      tokens  40k  reserve 4k  then finalize "Report what you found."
    }

Fix: none; how much an agent should have is yours to say.
"""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES
from policy_lang.diagnostics import Label
from policy_lang.quantities import text_of
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge_agents import Agent
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for agent in policy.agents.agents:
        for line in agent.limits:
            _above(agent, line, policy.merged.limits, report)


def _above(agent: Agent, line: LimitLine, limits: list[LimitLine], report: Report) -> None:
    resource, most = line.data["resource"], line.data["max"]
    pools = [pool for pool in limits if pool.data["resource"] == resource and pool.total is not None]
    pools = [pool for pool in pools if pool.data["scope"] in ("subtree", "thread")]
    pool = min(pools, key=lambda pool: pool.total or 0, default=None)
    if pool is None or most is None or pool.total is None or most <= pool.total:
        return
    there = text_of(pool.total, RESOURCES[resource].unit)
    report.warn(
        "P308",
        f"the agent `{agent.name}` can never have so much of `{resource}`",
        line.value.span,
        "more than any parent can leave",
        Label(pool.value.span, "all that there is for it and those above it"),
        help=f"write {there} or less, or a larger limit in `limits`",
    )
