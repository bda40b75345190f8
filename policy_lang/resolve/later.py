"""Statements that this version reads and cannot carry out: trees of agents.

Their words and quantities are judged like everyone's, so that a file is right on the day they
gain a meaning; then each gets one finding that says it has none yet.
"""

from __future__ import annotations

from engine.core.vocabulary import RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.quantities import COUNT
from policy_lang.report import Report
from policy_lang.resolve.failures import failure
from policy_lang.resolve.limits import limit_line
from policy_lang.resolve.statements import on_unknown_tool, threshold
from policy_lang.resolve.tools import tool
from policy_lang.resolve.values import Use, Values


def check_agents(block: tree.Agents, values: Values) -> None:
    """``agents``: limits on the tree of sub-agents, `share` and `carve`."""
    for line in block.lines:
        if isinstance(line, tree.Setting):
            name = values.word(line.resource, tuple(TREE_RESOURCES), "limit of `agents`")
            values.amount(line.value, Use(f"`{name or line.resource.span.text}`", COUNT, unlimited=True))
        elif isinstance(line, tree.Share | tree.Carve):
            for word in line.names:
                values.word(word, tuple(RESOURCES), "resource")
    values.report.unsupported(block.span.head(), "`agents`")


def check_agent(block: tree.Agent, values: Values) -> None:
    """``agent "NAME"``. What is not supported inside it is told once, for the whole."""
    values.plain(block.name, "the name of an agent", "write the name it is spawned by")
    inner = Values(values.names, Report(), values.clients)
    for line in block.lines:
        if isinstance(line, tree.Setting):
            limit_line(line, inner)
        elif isinstance(line, tree.Threshold):
            threshold(line, inner)
        elif isinstance(line, tree.Tool):
            tool(line, inner)
        elif isinstance(line, tree.On):
            what = inner.word(line.what, ("unknown_tool", "llm_failure"), "event")
            if what == "llm_failure":
                failure(line, inner)
            elif what == "unknown_tool":
                on_unknown_tool(line, inner)
    values.report.findings += [finding for finding in inner.report.findings if finding.code != "P340"]
    values.report.unsupported(block.span.head(), "`agent`")
