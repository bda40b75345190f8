"""What is said about the place under the mouse: what holds there, where it comes from, and what its words mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lsprotocol import types

from engine.core.vocabulary import RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.catalogue import find
from policy_lang.language_server import uses, words
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.cursor import around
from policy_lang.language_server.navigation import agent_of, constant_at, replaced
from policy_lang.lexer import lex
from policy_lang.names import a
from policy_lang.quantities import COUNT, DURATION, MONEY, TITLES, Quantity, Wrong, parse, text_of
from policy_lang.resolve.limits import LimitLine
from policy_lang.source import Span
from policy_lang.tables import tables

if TYPE_CHECKING:
    from engine.core.policy import Policy

_UNITS: Final = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"), (1, "millisecond"))


def hover(analysis: Analysis, position: types.Position) -> types.Hover | None:
    """What there is to say about a place; ``None`` if nothing."""
    offset = analysis.lines.offset(position)
    nodes = around(analysis.file, offset)
    parts = [*_about(analysis, nodes, offset), *_pages(analysis, offset)]
    if not parts:
        return None
    text = "\n\n---\n\n".join(dict.fromkeys(parts))
    span = _word_at(analysis, offset)
    place = analysis.lines.of(span) if span else None
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), place)


def _pages(analysis: Analysis, offset: int) -> Iterator[str]:
    """The page about each finding at the place."""
    for finding in analysis.findings:
        span = finding.primary.span
        if span.source is analysis.source and span.start <= offset <= span.end and (page := find(finding.code)):
            yield f"**{finding.code}: {page.title}**\n\n{page.text}"


def _about(analysis: Analysis, nodes: list[tree.Node], offset: int) -> Iterator[str]:
    node = nodes[-1] if nodes else None
    above = nodes[-2] if len(nodes) > 1 else None
    if isinstance(node, tree.Text):
        yield from _text(analysis, nodes, node)
    elif isinstance(node, tree.Number):
        yield from _quantity(parse(node.text))
    elif isinstance(node, tree.Name):
        yield from _name(analysis, nodes, node, above)
    else:
        yield from _keyword(analysis, offset)


def _word_at(analysis: Analysis, offset: int) -> Span | None:
    """The word, number or text that a place lies in."""
    start = analysis.source.line_start(offset)
    for token in lex(analysis.source.text[start : analysis.source.line_end(offset)], tables()):
        if token.text.strip() and start + token.start <= offset <= start + token.end:
            return Span(analysis.source, start + token.start, start + token.end)
    return None


def _keyword(analysis: Analysis, offset: int) -> Iterator[str]:
    span = _word_at(analysis, offset)
    if span and span.text in words.KEYWORDS:
        yield f"`{span.text}`: {words.KEYWORDS[span.text]}"


# ---- names


def _name(analysis: Analysis, nodes: list[tree.Node], node: tree.Name, above: tree.Node | None) -> Iterator[str]:
    if isinstance(above, tree.Setting) and node is above.resource:
        yield from _limit(analysis, above, agent_of(nodes))
    elif isinstance(above, tree.Act) and (claimed := _claimed(above, node)):
        yield f"`{node.text}`: {claimed}"
    elif found := constant_at(analysis, node):
        yield f"`{found.kind} {found.name} = {found.statement.value.span.text}` ({_place(found.span)})"
        if isinstance(found.meaning, Quantity):
            yield from _quantity(found.meaning)
    elif node.text in words.RESOURCES:
        yield from _resource(analysis, node.text)
    elif node.text in words.REASONS:
        yield f"`{node.text}`: {words.REASONS[node.text]}"
    elif said := words.OTHERS.get(node.text) or words.KEYWORDS.get(node.text):
        yield f"`{node.text}`: {said}"


def _claimed(act: tree.Act, node: tree.Name) -> str:
    """What a word of a claim means there."""
    deeds = {"at_most": act.parts[1:], "never_after": act.parts}.get(act.kind, ())
    if any(node is word for word in deeds):
        return words.DEEDS.get(node.text, "")
    if act.kind == "fact_is" and node is act.parts[2]:
        known = {"phase": words.PHASES, "last": words.DECISIONS}
        return known.get(getattr(act.parts[0], "text", ""), {}).get(node.text, "")
    return ""


def _resource(analysis: Analysis, name: str) -> Iterator[str]:
    """What a resource is, and what limits of it are in force."""
    yield _explained(name)
    lines = analysis.resolved.merged.limits if analysis.resolved else []
    held = [line for line in lines if line.data["resource"] == name]
    if held:
        yield "in force:\n\n" + "\n".join(f"- `{_shown(line)}` ({_place(line.node.span)})" for line in held)


def _explained(name: str) -> str:
    known = RESOURCES.get(name)
    unit = TITLES[known.unit] if known else TITLES[COUNT]
    scope = f", counted per `{known.scope}` unless it says otherwise" if known and known.scope else ""
    if name in TREE_RESOURCES and TREE_RESOURCES[name] is not None:
        scope = f", {TREE_RESOURCES[name]} where none is written"
    return f"`{name}` takes {a(unit)}{scope}.  \n{words.RESOURCES[name]}"


# ---- limits


def _limit(analysis: Analysis, line: tree.Setting, agent: str | None) -> Iterator[str]:
    """What is in force by this line and what it takes the place of, then what its resource is."""
    name = line.resource.text if isinstance(line.resource, tree.Name) else ""
    if name not in words.RESOURCES:
        return
    held = next((held for held in _in_force(analysis, agent) if held.node is line), None)
    if held is not None:
        yield f"**in force**: `{_shown(held)}` ({_place(held.node.span)})"
        yield from _sentence(analysis, held)
        for base in replaced(analysis, line, agent):
            yield f"takes the place of `{_shown(base)}` ({_place(base.node.span)})"
    yield _explained(name)


def _in_force(analysis: Analysis, agent: str | None) -> list[LimitLine]:
    """The limits of the merged policy, or of one of its agents."""
    if analysis.resolved is None:
        return []
    if agent is None:
        return [*analysis.resolved.merged.limits, *analysis.resolved.agents.limits]
    return [line for each in analysis.resolved.agents.agents if each.name == agent for line in each.limits]


def _sentence(analysis: Analysis, line: LimitLine) -> Iterator[str]:
    """The limit in English, where the policy has no errors; of its quantity at least."""
    if line.data["resource"] in RESOURCES and (policy := _policy(analysis)):
        from engine.core.machine.plan import plans_of
        from policy_lang.explain_limits import sentence

        for plan in plans_of(policy):
            origin = plan.limit.origin
            if origin and (origin.file, origin.line) == (line.node.span.source.name, line.node.span.line):
                yield sentence(plan, policy)
                return
    yield from _quantity(parse(line.value.text))


def _policy(analysis: Analysis) -> Policy | None:
    if analysis.resolved is None or any(finding.is_error for finding in analysis.findings):
        return None
    from engine.core.policy import Policy

    return Policy.model_validate(analysis.resolved.policy())


def _shown(line: LimitLine) -> str:
    """A limit as it is written, on one line."""
    return " ".join(line.node.span.text.split())


# ---- quantities and texts


def _quantity(quantity: Quantity | Wrong) -> Iterator[str]:
    """A quantity in words."""
    if not isinstance(quantity, Quantity):
        return
    value = quantity.value
    if quantity.dimension == DURATION:
        said = _duration(value)
    elif quantity.dimension == MONEY:
        said = f"{text_of(value, MONEY).removeprefix('$')} US dollars"
    elif quantity.dimension == COUNT:
        said = f"{value:,}, a count" if value >= 1000 else f"{value}, a count"
    else:
        said = f"{value} percent"
    yield f"`{quantity.text}`: {said}"


def _duration(milliseconds: int) -> str:
    parts = []
    for size, unit in _UNITS:
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count:,} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts) or "no time"


def _text(analysis: Analysis, nodes: list[tree.Node], node: tree.Text) -> Iterator[str]:
    above = nodes[-2] if len(nodes) > 1 else None
    if isinstance(above, tree.Extends | tree.Import) and (unit := analysis.unit_of(above)):
        header = next((s for s in unit.file.statements if isinstance(s, tree.Header)), None)
        yield f"{header.span.text if header else 'a file without a `policy` line'}  \n`{unit.path}`"
    elif isinstance(above, tree.Agent) and node is above.name and analysis.resolved:
        name = uses.plain(node)
        shown = "\n".join(f"- `{_shown(line)}` ({_place(line.node.span)})" for line in _in_force(analysis, name))
        yield f"the agent `{name}`, on top of the policy:\n\n{shown}" if shown else f"the agent `{name}`"


def _place(span: Span) -> str:
    return f"{span.source.name}:{span.line}"
