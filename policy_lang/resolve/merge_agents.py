"""Agents of several files become one: limits on the tree, pools, and the blocks of each agent.

A limit on the tree is inherited like any other. Blocks of the same agent merge, line by line, the nearest file's over
its base's. A block's limit of one run takes, for that agent, the place of the policy's own, and so may be tighter for
free; if it is looser it needs `override`, and a `locked` one it cannot loosen. A block is held against its own file and
that file's bases, not against what extends it: a base stays right whoever uses it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from policy_lang.report import Report
from policy_lang.resolve.agents import AgentBlock
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.layer import Layer
from policy_lang.resolve.limits import LimitLine, origin
from policy_lang.resolve.merge import failures_of, idle_words, thresholds_of
from policy_lang.resolve.overriding import Known, check_override, locked, looser, settle
from policy_lang.resolve.statements import ThresholdLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.source import Span


class Agent(NamedTuple):
    """One agent's rules, out of its blocks in all files. ``span`` is the head of the nearest."""

    name: str
    limits: list[LimitLine]
    thresholds: list[ThresholdLine]
    failures: list[FailureLine]
    tools: list[ToolLine]
    span: Span

    def binding(self, policy: list[LimitLine]) -> list[LimitLine]:
        """Its own limits, and those of the policy that bind each of its runs because it has none in their place."""
        own = {line.key for line in self.limits}
        return [*self.limits, *(line for line in policy if line.data["scope"] in ("run", None) and line.key not in own)]

    def data(self) -> dict[str, Any]:
        """In the shape of the policy's JSON."""
        return {
            "name": self.name,
            "limits": [line.data for line in self.limits],
            "thresholds": [line.data for line in self.thresholds],
            "failures": [line.data for line in self.failures],
            "tools": [line.data for line in self.tools],
            "origin": origin(self.span),
        }


class MergedAgents:
    """The tree that a policy allows, and its agents."""

    def __init__(self, layers: list[Layer], report: Report) -> None:
        self.limits = _tree_limits(layers, report)
        self.pools = _pools(layers)
        self.span = next((layer.tree.span for layer in reversed(layers) if layer.tree.span), None)
        """The head of the nearest `agents` block, if there is one."""
        self.agents = _agents(layers, report)

    def tree_data(self) -> dict[str, Any] | None:
        """The `agents` of the policy's JSON; ``None`` if no file has such a block."""
        if self.span is None:
            return None
        fields = ("resource", "max", "locked", "origin")
        return {
            "limits": [{field: line.data[field] for field in fields} for line in self.limits],
            "share": [name for name, (how, _) in self.pools.items() if how == "share"],
            "carve": [name for name, (how, _) in self.pools.items() if how == "carve"],
            "origin": origin(self.span),
        }


def _tree_limits(layers: list[Layer], report: Report) -> list[LimitLine]:
    known: Known = {}
    for layer in layers:
        settle(known, layer.tree.limits, idle_words(layers, layer), report)
    return list(known.values())


def _pools(layers: list[Layer]) -> dict[str, tuple[str, Span]]:
    """The nearest file's word on each resource."""
    known: dict[str, tuple[str, Span]] = {}
    for layer in layers:
        known.update(layer.tree.pools)
    return known


def _agents(layers: list[Layer], report: Report) -> list[Agent]:
    blocks: dict[str, list[tuple[int, AgentBlock]]] = {}
    limits: dict[str, Known] = {}
    around: Known = {}
    for distance, layer in zip(range(len(layers) - 1, -1, -1), layers, strict=True):
        around.update({line.key: line for line in layer.limits if line.data["scope"] in ("run", None)})
        idle = idle_words(layers, layer) and "neither the policy nor a base limits `{}` of this agent"
        for block in layer.agents:
            blocks.setdefault(block.name, []).append((distance, block))
            _settle(limits.setdefault(block.name, {}), around, block.limits, idle, report)
    return [_agent(name, list(limits[name].values()), found, report) for name, found in blocks.items()]


def _settle(known: Known, around: Known, lines: list[LimitLine], idle: str, report: Report) -> None:
    """Put a block's limits over those of a base's block, or over those of the policy around it."""
    own: list[LimitLine] = []
    for line in lines:
        policy = around.get(line.key)
        if line.key in known or policy is None:
            own.append(line)
        elif policy.data["locked"] and looser(line, policy):
            locked(line, policy, report, "policy")
        else:
            check_override(line, policy, report, "policy")
            known[line.key] = line
    settle(known, own, idle, report)


def _agent(name: str, limits: list[LimitLine], found: list[tuple[int, AgentBlock]], report: Report) -> Agent:
    blocks = [block for _, block in found]
    return Agent(
        name,
        limits,
        thresholds_of(blocks, report),
        failures_of(blocks),
        # An `allow` lifts what the same file denies, in this block or around it: its distance is what tells.
        [line._replace(data={**line.data, "base": distance}) for distance, block in found for line in block.tools],
        blocks[-1].span,
    )
