"""From a name to where it is defined."""

from __future__ import annotations

from collections.abc import Iterator

from lsprotocol import types
from pygls import uris

from policy_lang import tree
from policy_lang.language_server import uses
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.cursor import around
from policy_lang.language_server.findings import uri_of
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.names import Definition
from policy_lang.source import Span


def definition(analysis: Analysis, position: types.Position) -> list[types.Location]:
    """Where what stands at a place is defined; nothing for what needs no definition."""
    nodes = around(analysis.file, analysis.lines.offset(position))
    if not nodes or analysis.resolved is None:
        return []
    node, above = nodes[-1], nodes[-2] if len(nodes) > 1 else None
    if isinstance(above, tree.Extends | tree.Import):
        unit = analysis.unit_of(above)
        return [types.Location(uris.from_fs_path(unit.path) or "", _TOP)] if unit else []
    if isinstance(node, tree.Name):
        spans = list(_of_name(analysis, nodes, node, above))
    elif isinstance(node, tree.Text) and any(node is word for word in uses.agents(analysis.file)):
        spans = list(_of_agent(analysis, node))
    else:
        spans = []
    placed = [(uri_of(analysis, span.source), analysis.lines_of(span.source).of(span)) for span in spans]
    return [types.Location(uri, place) for uri, place in placed if uri]


_TOP = types.Range(types.Position(0, 0), types.Position(0, 0))


def constant_at(analysis: Analysis, node: tree.Node) -> Definition | None:
    """The `param` or `let` that a word stands for."""
    if analysis.resolved is None or not isinstance(node, tree.Name):
        return None
    if not any(node is word for word in uses.constants(analysis.file)):
        return None
    names = analysis.resolved.names
    return names.own.get(node.text) or names.imported.get(node.text)


def _of_name(analysis: Analysis, nodes: list[tree.Node], node: tree.Name, above: tree.Node | None) -> Iterator[Span]:
    if found := constant_at(analysis, node):
        yield found.span
    elif isinstance(above, tree.Setting) and node is above.resource:
        yield from (line.resource_span for line in replaced(analysis, above, agent_of(nodes)))


def _of_agent(analysis: Analysis, node: tree.Text) -> Iterator[Span]:
    """The agent's blocks, the nearest file's first; from one of them the others."""
    assert analysis.resolved is not None
    heads = [head for unit in analysis.resolved.unit.chain() for head in uses.blocks(unit.file, uses.plain(node))]
    others = [head.span for head in heads if head is not node]
    yield from others or [head.span for head in heads]


def agent_of(nodes: list[tree.Node]) -> str | None:
    """The agent whose block a place lies in."""
    block = next((node for node in nodes if isinstance(node, tree.Agent)), None)
    return uses.plain(block.name) if block and isinstance(block.name, tree.Text) else None


def replaced(analysis: Analysis, line: tree.Setting, agent: str | None) -> list[LimitLine]:
    """The limits of bases that a line of the document takes the place of, the nearest first."""
    layers = analysis.resolved.layers if analysis.resolved else []
    found: list[list[LimitLine]] = []
    for layer in reversed(layers):
        if agent is None:
            found.append([*layer.limits, *layer.tree.limits])
        else:
            found.append([held for block in layer.agents if block.name == agent for held in block.limits])
    mine = next((held for held in found[0] if held.node is line), None) if found else None
    return [held for lines in found[1:] for held in lines if mine and held.key == mine.key]
