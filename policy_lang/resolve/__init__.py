"""Trees to a policy: names, units, other files, inheritance, and what is wrong with any of it.

Gives a plain dict in the shape of ``engine.core.policy.Policy``'s JSON, without importing that
model: a check must start fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.core.vocabulary import LANG
from policy_lang.diagnostics import Diagnostic, in_order
from policy_lang.report import Report
from policy_lang.resolve import lints, lints_agents, lints_failures, lints_tools
from policy_lang.resolve.files import Loader, Unit
from policy_lang.resolve.layer import Layer
from policy_lang.resolve.limits import origin
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.merge_agents import MergedAgents
from policy_lang.resolve.names import Names, check_settings
from policy_lang.resolve.values import Values
from policy_lang.source import Source
from policy_lang.suppressions import suppress


def resolve(
    source: Source, path: str, root: str | None, settings: Mapping[str, Any], clients: Sequence[str] | None = None
) -> tuple[dict[str, Any] | None, list[Diagnostic]]:
    """The policy of a source, ``None`` if it has errors, and every finding in order.

    ``path`` is the source's absolute place, ``root`` the real directory its other files must lie
    in, ``settings`` what the host gives to its ``param``s, ``clients`` the names of its clients if
    they are known.
    """
    report = Report()
    loader = Loader(root, report)
    unit = loader.load(path, source)
    chain = unit.chain()
    check_settings(chain, settings, report)
    names = {id(member): Names(member, settings, report) for member in chain}
    layers = [Layer(member, Values(names[id(member)], report, clients)) for member in reversed(chain)]
    imports = _imports(chain, report)
    merged = Merged(layers, imports, report)
    agents = MergedAgents(layers, report)
    broken = any(rules.lost for layer in layers for rules in (layer, *layer.agents))
    broken = broken or any(layer.unit.broken for layer in layers)
    lints.check(merged, broken, report)
    lints_failures.check(merged.failures, merged.limits, report)
    lints_tools.check(merged, agents, report)
    lints_agents.check(merged, agents, broken, report)
    lints.unused_names(unit, names[id(unit)], report)
    findings = suppress(unit, [f for f in report.findings if f.is_error or f.primary.span.source is source])
    ordered = in_order(findings, loader.sources)
    if any(finding.is_error for finding in ordered):
        return None, ordered
    return _policy(layers[-1].name or "", merged, agents), ordered


def _imports(chain: list[Unit], report: Report) -> list[Layer]:
    """The imported files of a whole chain, each once."""
    found: dict[int, Unit] = {}
    for member in chain:
        for other in member.imported():
            found.setdefault(id(other), other)
    return [Layer(other, Values(Names(other, {}, report), report), imported=True) for other in found.values()]


def _policy(name: str, merged: Merged, agents: MergedAgents) -> dict[str, Any]:
    place = origin(merged.final_origin) if merged.final_origin else None
    return {
        "lang": LANG,
        "name": name,
        "limits": [line.data for line in merged.limits],
        "finalization": {**merged.final, "origin": place},
        "thresholds": [line.data for line in merged.thresholds],
        "failures": [line.data for line in merged.failures],
        "breakers": [line.data for line in merged.breakers],
        "tools": [line.data for line in merged.tools],
        "prices": merged.prices,
        "agents": agents.tree_data(),
        "agent": [agent.data() for agent in agents.agents],
    }
