"""Errors that only the merged policy shows: a limit that cannot be counted, a percentage of nothing.

What such a policy merely does in vain is the business of ``policy_lang.rules``.
"""

from __future__ import annotations

from typing import Any

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.merge_agents import MergedAgents
from policy_lang.resolve.statements import ThresholdLine


def check(merged: Merged, agents: MergedAgents, report: Report) -> None:
    """All of them, of the policy and of each agent's block. Only where everything could be read: absence counts."""
    _unpriced_cost(merged.limits, merged.prices, report)
    _idle_thresholds(merged.thresholds, merged.limits, "`limits`", report)
    for agent in agents.agents:
        _unpriced_cost(agent.limits, merged.prices, report)
        _idle_thresholds(agent.thresholds, agent.binding(merged.limits), "this block", report)


def _unpriced_cost(limits: list[LimitLine], prices: list[dict[str, Any]], report: Report) -> None:
    """A limit of `cost` where nothing says what a token costs."""
    line = next((m for m in limits if m.data["resource"] == "cost" and m.data["max"] is not None), None)
    if line is not None and not prices:
        report.error(
            "P325",
            "a `cost` limit needs prices",
            line.resource_span,
            "nothing says what a token costs",
            help='add a block `prices {` with lines such as `"gpt-4.1" input $2 cached $0.50 output $8 per 1M`',
        )


def _idle_thresholds(thresholds: list[ThresholdLine], limits: list[LimitLine], where: str, report: Report) -> None:
    """Percentages of what has no limit. ``where`` it would be limited."""
    limited = {line.data["resource"] for line in limits if line.data["max"] is not None}
    for line in thresholds:
        name = line.data["resource"]
        if name in limited:
            continue
        unlimited = next((m for m in limits if m.data["resource"] == name), None)
        why = (Label(unlimited.value.span, "unlimited here"),) if unlimited else ()
        help = f"limit it, as in `{name} …` in {where}, or remove the threshold"
        report.error(
            "P310",
            f"`{name}` has no limit, so no percentage of it is ever reached",
            line.node.resource.span,
            "not limited",
            *why,
            help=help,
        )
