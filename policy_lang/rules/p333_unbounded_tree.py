"""tree of agents that nothing bounds

`llm_calls` is counted for each run of each agent, unless a scope is written. A model that delegates again and again
can then make any number of calls. A limit for the whole tree ends that: `llm_calls 100 per subtree`, or one on
tokens, cost or tool calls, whose scope is the subtree anyway; or `children` with a `depth`.

Why: the bill of one question has no upper bound, though every agent is limited.

Bad:

    policy "team" lang 1
    limits {
      llm_calls  20  then finalize
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Good:

    policy "team" lang 1
    limits {
      llm_calls  20  then finalize
      llm_calls  100  per subtree
    }
    agent "explore" {
      llm_calls  6  then finalize
    }

Fix: none; what the whole tree may use is yours to say.
"""

from __future__ import annotations

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.rules.p309_no_agents import nobody
from policy_lang.rules.subject import Subject

_BOUNDING = ("llm_calls", "llm_attempts", "tokens", "input_tokens", "output_tokens", "cost", "tool_calls")
"""A limit of one of these, for all agents together, bounds the model calls of a tree: each takes some of it, and each
agent that is spawned took a tool call."""


def check(policy: Subject, report: Report) -> None:
    if policy.broken or nobody(policy):
        return
    agents = policy.agents
    place = agents.span or next((agent.span for agent in agents.agents), None)
    finite = policy.main.finite(*_BOUNDING)
    calls = next((line for line in finite if line.title == "llm_calls"), None)
    if place is None or calls is None:
        return
    limits = {line.title: line.data["max"] for line in agents.limits}
    few = limits.get("children") is not None and limits.get("depth", 0) is not None
    if few or any(line.data["scope"] in ("subtree", "thread") for line in finite):
        return
    report.warn(
        "P333",
        "`llm_calls` is limited for each run of each agent, and nothing limits them all together",
        calls.resource_span,
        "each agent may make as many again",
        Label(place, "agents may be spawned, and spawn others"),
        help="limit the whole tree too, as in `llm_calls 100 per subtree` or `tokens 500k`",
    )
