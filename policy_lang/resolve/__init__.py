"""Trees to a policy: names, units, other files, inheritance, and what is wrong with any of it.

Gives a plain dict in the shape of ``engine.core.policy.Policy``'s JSON, without importing that
model: a check must start fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core.vocabulary import LANG
from policy_lang import tree
from policy_lang.cases import Case
from policy_lang.diagnostics import Diagnostic
from policy_lang.report import Report
from policy_lang.resolve import whole
from policy_lang.resolve.files import Loader, Reader, Unit
from policy_lang.resolve.layer import Layer
from policy_lang.resolve.limits import origin
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.merge_agents import MergedAgents
from policy_lang.resolve.names import Names, check_settings
from policy_lang.resolve.values import Values
from policy_lang.source import Source, read

if TYPE_CHECKING:
    from policy_lang.resolve.claims import ClaimLine


class Resolved(NamedTuple):
    """A source with all the files it asks for, as one policy. ``layers`` are the file and its bases, the outermost base
    first; ``names`` are those of the file itself; ``broken`` says that something could not be read, so that absence
    proves nothing; ``findings`` is what was found so far, in no order; ``cases`` are the tests of the file and of what
    it imports, ``claims`` are the claims of the file; those of a base are left to the base."""

    unit: Unit
    sources: list[Source]
    layers: list[Layer]
    imports: list[Layer]
    names: Names
    merged: Merged
    agents: MergedAgents
    broken: bool
    findings: list[Diagnostic]
    cases: list[Case]
    claims: list[ClaimLine]

    def policy(self) -> dict[str, Any]:
        """The policy in the shape of ``engine.core.policy.Policy``'s JSON. It has no meaning where there are errors."""
        policy = _policy(self.layers[-1].name or "", self.merged, self.agents)
        return {**policy, "claims": [claim.data for claim in self.claims]}


def resolve(
    source: Source,
    path: str,
    root: str | None,
    settings: Mapping[str, Any],
    clients: Sequence[str] | None = None,
    reader: Reader = read,
) -> Resolved:
    """Read and merge everything a source says.

    ``path`` is the source's absolute place, ``root`` the real directory its other files must lie
    in, ``settings`` what the host gives to its ``param``s, ``clients`` the names of its clients if
    they are known. ``reader`` reads the other files, from the disk unless an editor knows better.
    """
    report = Report()
    loader = Loader(root, report, reader)
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
    if not broken:
        whole.check(merged, agents, report)
    cases = _cases(unit, layers[-1], imports, merged, agents)
    claims = _claims(layers[-1])
    found = report.findings
    own = names[id(unit)]
    return Resolved(unit, loader.sources, layers, imports, own, merged, agents, broken, found, cases, claims)


def _cases(unit: Unit, layer: Layer, imports: list[Layer], merged: Merged, agents: MergedAgents) -> list[Case]:
    """The tests of a file and of what it imports. Most files have none, and pay nothing."""
    imported = {id(other) for other in unit.imported()}
    chosen = [layer, *(other for other in imports if id(other.unit) in imported)]
    if not any(isinstance(s, tree.Test) for each in chosen for s in each.unit.file.statements):
        return []
    from policy_lang.resolve.tests import Facts, cases_of, switched_to

    policy = _policy("", merged, agents)
    own = Facts(frozenset(switched_to(policy)), frozenset(agent["name"] for agent in policy["agent"]))
    found: list[Case] = []
    for each in chosen:
        facts = own if each is layer else Facts()
        found += cases_of(each.unit.file.statements, each.values, facts, imported=each is not layer)
    return found


def _claims(layer: Layer) -> list[ClaimLine]:
    """The claims of a file. As tests, they cost nothing where there are none."""
    statements = layer.unit.file.statements
    if not any(isinstance(statement, tree.Verify) for statement in statements):
        return []
    from policy_lang.resolve.claims import claims_of

    return claims_of(statements, layer.values)


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
