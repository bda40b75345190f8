"""What agents and the limits of a policy do to one another: budgets that no parent can leave, trees that nothing
bounds, pools that are none, blocks for agents that cannot be."""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.quantities import text_of
from policy_lang.report import Report
from policy_lang.resolve import lints, lints_failures
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.merge_agents import Agent, MergedAgents

_BOUNDING = ("llm_calls", "llm_attempts", "tokens", "input_tokens", "output_tokens", "cost", "tool_calls")
"""A limit of one of these, for all agents together, bounds the model calls of a tree: each takes some of it, and each
agent that is spawned took a tool call."""


def check(merged: Merged, agents: MergedAgents, broken: bool, report: Report) -> None:
    """All findings about trees. ``broken``: something could not be read, so absence proves nothing."""
    for agent in agents.agents:
        _own(agent, merged, broken, report)
        for line in agent.limits:
            _above_parent(agent, line, merged, report)
    nobody = _nobody(agents, report)
    if not broken:
        if not nobody:
            _unbounded(merged, agents, report)
        for name in agents.pools:
            _pool(name, merged, agents, report)


# ---- one agent


def _own(agent: Agent, merged: Merged, broken: bool, report: Report) -> None:
    """What is checked of every policy, of what an agent's block says and inherits."""
    own = {line.key for line in agent.limits}
    inherited = [line for line in merged.limits if line.data["scope"] in ("run", None) and line.key not in own]
    limits = [*agent.limits, *inherited]
    lints.check_lines(agent.limits, report)
    _budgets(agent, limits, merged, report)
    walls = [line for line in merged.limits if line.data["resource"] == "wall"]
    lints_failures.check(agent.failures, [*limits, *walls], report)
    if not broken:
        lints.unpriced_cost(agent.limits, merged.prices, report)
        lints.idle_thresholds(agent.thresholds, limits, "this block", report)


def _budgets(agent: Agent, limits: list[LimitLine], merged: Merged, report: Report) -> None:
    calls = next((line for line in limits if line.title == "llm_calls"), None)
    rounds = next((line for line in limits if line.title == "tool_iterations"), None)
    if calls is None or rounds is None:
        return
    if rounds in agent.limits:
        lints.check_budgets(calls, rounds, merged.final, report)
    elif calls in agent.limits:
        _never_final(agent, calls, rounds, merged, report)


def _never_final(agent: Agent, calls: LimitLine, rounds: LimitLine, merged: Merged, report: Report) -> None:
    """Fewer calls than the policy's rounds take are what a block is for; but then nothing makes the agent answer."""
    most, total = calls.data["max"], rounds.total
    if calls.finalizes or most is None or total is None or not rounds.finalizes:
        return
    needed = lints.needed_calls(total, merged.final)
    if most < needed:
        step = next(step for step in rounds.node.steps if isinstance(step, tree.Finalize | tree.FinalizeUsing))
        report.warn(
            "P301",
            f"the agent `{agent.name}` runs out of model calls before the final one of `tool_iterations`",
            calls.value.span,
            f"{needed} calls would be needed",
            Label(step.span, "never reached"),
            help=f"write `llm_calls {calls.value.text} then finalize`, so that it answers all the same",
        )


def _above_parent(agent: Agent, line: LimitLine, merged: Merged, report: Report) -> None:
    """An agent's budget above what the whole tree has."""
    resource, most = line.data["resource"], line.data["max"]
    pools = [pool for pool in merged.limits if pool.data["resource"] == resource and pool.total is not None]
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


# ---- the tree


def _nobody(agents: MergedAgents, report: Report) -> bool:
    """Blocks for agents, where no agent can be spawned."""
    none = next((line for line in agents.limits if line.data["max"] == 0), None)
    if none and agents.agents:
        report.warn(
            "P309",
            f"`{none.title} 0` lets no agent be spawned",
            none.value.span,
            "none at all",
            Label(agents.agents[0].span, "for an agent that cannot be"),
            help=f"write a larger `{none.title}`, or remove the block",
        )
    return none is not None


def _unbounded(merged: Merged, agents: MergedAgents, report: Report) -> None:
    """Model calls are limited for each run of each agent, and nothing limits how many of those there are."""
    place = agents.span or next((agent.span for agent in agents.agents), None)
    calls = next((line for line in merged.limits if line.title == "llm_calls" and line.data["max"] is not None), None)
    if place is None or calls is None:
        return
    bounded = [line for line in merged.limits if line.data["max"] is not None and line.data["resource"] in _BOUNDING]
    limits = {line.title: line.data["max"] for line in agents.limits}
    few = limits.get("children") is not None and limits.get("depth", 0) is not None
    if few or any(line.data["scope"] in ("subtree", "thread") for line in bounded):
        return
    report.warn(
        "P333",
        "`llm_calls` is limited for each run of each agent, and nothing limits them all together",
        calls.resource_span,
        "each agent may make as many again",
        Label(place, "agents may be spawned, and spawn others"),
        help="limit the whole tree too, as in `llm_calls 100 per subtree` or `tokens 500k`",
    )


# ---- pools


def _pool(name: str, merged: Merged, agents: MergedAgents, report: Report) -> None:
    """What agents draw on together needs a limit; what is carved for one agent, an amount in its block."""
    how, place = agents.pools[name]
    having = [agent for agent in agents.agents if _has_pool(agent.limits, name)]
    if not having and not _has_pool(merged.limits, name):
        other = next((line for line in merged.limits if line.data["resource"] == name), None)
        scope = "unlimited here" if other is None or other.data["max"] is None else f"limited per {other.data['scope']}"
        report.warn(
            "P345",
            f"there is no pool of `{name}`: nothing limits it for a tree",
            place,
            f"nothing to {how}",
            *([Label(other.resource_span, scope)] if other else []),
            help=f"limit it per subtree in `limits`, or remove it from `{how}`",
        )
        return
    if how != "carve":
        return
    for agent in agents.agents:
        if agent not in having:
            _no_amount(name, agent, agents, report)
    if not agents.agents:
        report.warn(
            "P346",
            f"nothing says how much `{name}` an agent gets",
            place,
            "nothing is carved",
            help=f"limit `{name}` in the block of each agent; without an amount of its own it draws on the pool",
        )


def _has_pool(limits: list[LimitLine], name: str) -> bool:
    scopes = ("subtree", "thread")
    return any(
        line.data["resource"] == name and line.data["scope"] in scopes and line.data["max"] is not None
        for line in limits
    )


def _no_amount(name: str, agent: Agent, agents: MergedAgents, report: Report) -> None:
    report.warn(
        "P346",
        f"the agent `{agent.name}` has no amount of `{name}` that could be carved",
        agents.pools[name][1],
        "it draws on the pool instead",
        Label(agent.span, f"no limit of `{name}` per subtree"),
        help=f"limit `{name}` in its block, or `share {name}`",
    )
