"""pool that is none

Agents share, or are given their part of, what is limited for a tree: per subtree, or per thread. Where nothing limits
a resource in this way, there is nothing to share or carve.

Why: the line looks as if it bounded what all agents use together.

Bad:

    policy "team" lang 1
    limits {
      llm_calls  20  then finalize
    }
    agents {
      children  2
      depth     1
      share     tokens
    }

Good:

    policy "team" lang 1
    limits {
      llm_calls  20  then finalize
      tokens     200k
    }
    agents {
      children  2
      depth     1
      share     tokens
    }

Fix: none; either a limit is missing or the line is not needed.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    for name in () if policy.broken else policy.agents.pools:
        if not any(has_pool(agent.limits, name) for agent in policy.agents.agents):
            _pool(name, policy, report)


def _pool(name: str, policy: Subject, report: Report) -> None:
    how, place = policy.agents.pools[name]
    if has_pool(policy.merged.limits, name):
        return
    other = next((line for line in policy.merged.limits if line.data["resource"] == name), None)
    scope = "unlimited here" if other is None or other.data["max"] is None else f"limited per {other.data['scope']}"
    report.warn(
        "P345",
        f"there is no pool of `{name}`: nothing limits it for a tree",
        place,
        f"nothing to {how}",
        *([Label(other.resource_span, scope)] if other else []),
        help=f"limit it per subtree in `limits`, or remove it from `{how}`",
    )


def has_pool(limits: list[LimitLine], name: str) -> bool:
    """Is the resource limited for a tree?"""
    scopes = ("subtree", "thread")
    return any(
        line.data["resource"] == name and line.data["scope"] in scopes and line.data["max"] is not None
        for line in limits
    )
