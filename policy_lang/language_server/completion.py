"""What an editor offers to write: what the parser accepts at the place, as far as the resolver would take it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from lsprotocol import types

from engine.core.vocabulary import PLACEHOLDERS, RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import ERROR
from policy_lang.language_server import slots, words
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.cursor import walk
from policy_lang.language_server.point import TEXT, Point, point_at
from policy_lang.quantities import Quantity
from policy_lang.resolve.names import Definition, String
from policy_lang.tables import tables
from policy_lang.texts import client_text, quote
from policy_lang.walking import policy_files

TRIGGERS: Final = (" ", '"', "{", ",", ">")
"""Signs after which an editor asks by itself."""

MOST_FILES: Final = 200
"""Files that are offered behind `extends` and `import`."""

_KIND = types.CompletionItemKind
_BEFORE_TOOLS = frozenset(("tool", "run", "skip", "asks", ",", "unknown"))


class Offer(NamedTuple):
    """One word: what is written, what kind of thing it is, and what is said about it."""

    text: str
    kind: types.CompletionItemKind
    detail: str = ""
    said: str = ""


def completions(analysis: Analysis, position: types.Position) -> list[types.CompletionItem]:
    """What may be written at a place, the likeliest kinds first."""
    offset = analysis.lines.offset(position)
    point = point_at(analysis.source.text, offset)
    offers = list(_offers(analysis, point))
    start = point.start
    if point.quoted:
        inside = analysis.source.text[point.start : offset]
        start = point.start if "{" not in inside else point.start + inside.rindex("{") + 1
    place = analysis.lines.range(start, max(offset, start))
    seen: set[str] = set()
    made = []
    for number, offer in enumerate(offers):
        if offer.text not in seen:
            seen.add(offer.text)
            made.append(_item(offer, number, place))
    return made


def _item(offer: Offer, number: int, place: types.Range) -> types.CompletionItem:
    return types.CompletionItem(
        offer.text,
        kind=offer.kind,
        detail=offer.detail or None,
        documentation=offer.said or None,
        sort_text=f"{number:04}",
        filter_text=offer.text,
        text_edit=types.TextEdit(place, offer.text),
    )


def _offers(analysis: Analysis, point: Point) -> Iterator[Offer]:
    if point.comment:
        yield from _suppressions(analysis, point)
    elif point.quoted:
        yield from _texts(analysis, point, quoted=True)
    else:
        yield from _names(analysis, point)
        if "STRING" in point.accepts:
            yield from _texts(analysis, point, quoted=False)
        yield from _keywords(point)


# ---- words of the language


def _keywords(point: Point) -> Iterator[Offer]:
    known = tables()
    out = set(slots.out_of_place(point))
    for kind in sorted(point.accepts):
        word = known.literals.get(kind)
        if word == "unlimited" and not slots.takes_unlimited(point):
            continue
        if word in known.keywords and word not in out:
            yield Offer(word, _KIND.Keyword, "", words.KEYWORDS.get(word, ""))
        elif point.first == "verify" and word in slots.COMPARED - out:
            yield Offer(word, _KIND.Operator)
    if "STAR" in point.accepts:
        yield Offer("*", _KIND.Operator, "every reason but `host`")


def _names(analysis: Analysis, point: Point) -> Iterator[Offer]:
    if "NAME" not in point.accepts:
        return
    for word in slots.words_at(point):
        yield _claimed(point, word) if point.first == "verify" else _word(word)
    if slots.takes_client(point) or point.words == ("expect", "fallback"):
        for name in clients(analysis):
            yield Offer(client_text(name), _KIND.Value, "client")
    elif "QUANTITY" in point.accepts:
        yield from _constants(analysis, point, text=False)
    elif "STRING" in point.accepts:
        yield from _constants(analysis, point, text=True)


def _word(word: str) -> Offer:
    if word in words.RESOURCES:
        unit = RESOURCES[word].unit if word in RESOURCES else "count"
        return Offer(word, _KIND.Field, f"resource, {unit}", words.RESOURCES[word])
    if word in words.REASONS:
        return Offer(word, _KIND.EnumMember, "reason of a failure", words.REASONS[word])
    return Offer(word, _KIND.EnumMember, "", words.OTHERS.get(word, ""))


def _claimed(point: Point, word: str) -> Offer:
    """A word of a claim, which may be another thing elsewhere."""
    if point.last in ("is", "not"):
        phase = "phase" in point.words[-3:]
        said = words.PHASES if phase else words.DECISIONS
        return Offer(word, _KIND.EnumMember, "phase" if phase else "decision", said[word])
    return Offer(word, _KIND.EnumMember, "", words.DEEDS[word]) if word in words.DEEDS else _word(word)


def _constants(analysis: Analysis, point: Point, text: bool) -> Iterator[Offer]:
    """The `param`s and `let`s that fit: texts for a text, quantities of its unit for a resource."""
    if point.first in ("param", "let"):
        return
    unit = slots.unit_at(point)
    for definition in definitions(analysis):
        meaning = definition.meaning
        if meaning is None or isinstance(meaning, String) != text:
            continue
        if unit and isinstance(meaning, Quantity) and meaning.dimension != unit:
            continue
        shown = definition.statement.value.span.text
        yield Offer(definition.name, _KIND.Constant, f"{definition.kind} = {shown}")


def _suppressions(analysis: Analysis, point: Point) -> Iterator[Offer]:
    """Behind `# policy: allow` the codes of what is found in this file."""
    from policy_lang.catalogue import title

    start = analysis.source.line_start(point.start)
    line = analysis.source.text[start : analysis.source.line_end(point.start)]
    if re.search(r"#[ \t]*policy:[ \t]*allow[ \t]+P?[0-9]*\Z", line):
        for code in sorted({f.code for f in analysis.findings if f.severity != ERROR}):
            yield Offer(f"{line[point.start - start :].rpartition(' ')[0]} {code}", _KIND.Reference, title(code) or "")


# ---- texts


def _texts(analysis: Analysis, point: Point, quoted: bool) -> Iterator[Offer]:
    """What may stand in a text here: a file, a tool, an agent, a model, else the placeholders."""
    kind, found = _named(analysis, point)
    for text in found:
        written = quote(text)
        yield Offer(written[1:-1] if quoted else written, _KIND.File if kind == "file" else _KIND.Value, kind)
    if quoted and not kind:
        for name in PLACEHOLDERS:
            yield Offer(f"{name}}}", _KIND.Variable, "filled in when the text is sent")


def _named(analysis: Analysis, point: Point) -> tuple[str, Iterable[str]]:
    last, first = point.last, point.first
    if last in ("extends", "import"):
        return "file", _files(analysis)
    if point.words in (("tool",), ("breaker",)):
        return "tool", [*tools(analysis), "*"]
    if point.words in (("agent",), ("when", "spawn"), ("when", "child")):
        return "agent", agents(analysis)
    if point.words == ("test", TEXT, "as"):
        return "agent", blocks(analysis)
    if point.block == "test" and (last in _BEFORE_TOOLS or (first, last) == ("expect", "ask")):
        return "tool", tools(analysis)
    if point.block == "prices" and not point.words:
        return "model", analysis.models
    if slots.takes_client(point) or point.words == ("expect", "fallback"):
        return "client", [name for name in clients(analysis) if client_text(name).startswith('"')]
    named = point.words in (("policy",), ("test",), ("verify",)) or last in ("args", "result", "answers")
    return ("a name" if named else ""), ()


def _files(analysis: Analysis) -> list[str]:
    """Policy files below the document's directory, as it would write them."""
    if not analysis.path:
        return []
    here = os.path.dirname(analysis.path)
    others = (place for place in policy_files(here) if os.path.realpath(place) != analysis.path)
    return [os.path.relpath(place, here).replace(os.sep, "/") for place in islice(others, MOST_FILES)]


# ---- what a file and its host have


def definitions(analysis: Analysis) -> list[Definition]:
    """The `param`s and `let`s that the document may use."""
    if analysis.resolved is None:
        return []
    names = analysis.resolved.names
    return [*names.own.values(), *names.imported.values()]


def clients(analysis: Analysis) -> list[str]:
    """The clients that settings declare; without any, those that the file names."""
    if analysis.clients is not None:
        return analysis.clients
    named: list[tree.Node] = []
    for node in walk(analysis.file):
        if isinstance(node, tree.Fallback):
            named += node.clients
        elif isinstance(node, tree.Threshold) and isinstance(node.action, tree.Name) and node.action.text == "use":
            named += [node.text] if node.text else []
    found = [node.raw[1:-1] if isinstance(node, tree.Text) else getattr(node, "text", "") for node in named]
    return sorted({name for name in found if name})


def tools(analysis: Analysis) -> list[str]:
    """The tools that settings declare, and the patterns and names of the files."""
    found = dict.fromkeys(analysis.tools or ())
    for unit in analysis.units():
        for node in walk(unit.file):
            if isinstance(node, tree.Tool | tree.Breaker) and isinstance(node.glob, tree.Text):
                found.setdefault(node.glob.raw[1:-1])
    return [name for name in found if name != "*"]


def agents(analysis: Analysis) -> list[str]:
    """The agents that settings declare, and those that the policy has a block for."""
    return list(dict.fromkeys((*(analysis.agents or ()), *blocks(analysis))))


def blocks(analysis: Analysis) -> list[str]:
    """The agents that the policy has a block for: those that a test can be played as."""
    return [agent.name for agent in analysis.resolved.agents.agents] if analysis.resolved else []


__all__ = ["TRIGGERS", "agents", "clients", "completions", "definitions", "tools"]
