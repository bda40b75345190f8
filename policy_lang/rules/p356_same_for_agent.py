"""limit of an agent that is the policy's

An agent has all limits of one run that the policy has. A line in its block that says the same once more changes
nothing.

Why: the line hides the next change of the policy from this agent, and looks as if it narrowed something.

Bad:

    policy "team" lang 1
    limits {
      tokens     200k
      llm_calls  20  then finalize
    }
    agent "explore" {
      llm_calls  20  then finalize
    }

Good:

    policy "team" lang 1
    limits {
      tokens     200k
      llm_calls  20  then finalize
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Fix: none; a smaller number and no line at all are both right.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.shared import says_the_same
from policy_lang.rules.subject import Subject


def check(policy: Subject, report: Report) -> None:
    known = {line.key: line for line in policy.merged.limits if line.data["scope"] == "run"}
    for agent in policy.agents.agents:
        for line in agent.limits:
            first = known.get(line.key)
            if first is not None and says_the_same(line, first):
                report.warn(
                    "P356",
                    f"the agent `{agent.name}` has this limit of `{line.title}` anyway",
                    line.node.span,
                    "narrows nothing",
                    Label(first.node.span, "the policy's own"),
                    help="write a smaller limit, or remove it",
                )
