"""rules for agents that cannot be

`children 0`, `live_children 0` and `depth 0` let no agent be spawned, and a block for one is never of use.

Why: the block looks as if such an agent were allowed and limited.

Bad:

    policy "alone" lang 1
    agents {
      children  0
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Good:

    policy "team" lang 1
    agents {
      children  2
      depth     1
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Fix: none; either the number is wrong or the block is.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    none = nobody(policy)
    if none and policy.agents.agents:
        report.warn(
            "P309",
            f"`{none.title} 0` lets no agent be spawned",
            none.value.span,
            "none at all",
            Label(policy.agents.agents[0].span, "for an agent that cannot be"),
            help=f"write a larger `{none.title}`, or remove the block",
        )


def nobody(policy: Subject) -> LimitLine | None:
    """The limit of the tree because of which no agent can be spawned."""
    return next((line for line in policy.agents.limits if line.data["max"] == 0), None)
