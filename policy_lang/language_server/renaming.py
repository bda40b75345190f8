"""What it takes to rename a constant or an agent in all files of a project that speak of it.

A name is renamed everywhere or not at all: whatever stands in the way is said in one sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from lsprotocol import types
from pygls import uris

from policy_lang import tree
from policy_lang.language_server import uses
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.cursor import around
from policy_lang.language_server.navigation import constant_at
from policy_lang.language_server.positions import Lines
from policy_lang.parser import RESERVED, parse
from policy_lang.report import Report
from policy_lang.resolve.files import Loader, Unit
from policy_lang.source import Source, Span, Unreadable, decode, read
from policy_lang.walking import policy_files

MOST_FILES: Final = 1_000
"""Policy files of a project that are looked through."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*")


class Refused(Exception):
    """Why something cannot be renamed, in one sentence."""


class Target(NamedTuple):
    """What is to be renamed. ``span`` is the name under the cursor, of an agent without its quotes; ``homes`` are the
    real paths of the files that it is defined in; ``kind`` is `param`, `let` or `agent`."""

    kind: str
    name: str
    span: Span
    homes: frozenset[str]


def target_at(analysis: Analysis, position: types.Position) -> Target:
    """What a place names. Raises ``Refused``."""
    nodes = around(analysis.file, analysis.lines.offset(position))
    node = nodes[-1] if nodes else None
    if analysis.resolved is None or not analysis.path:
        raise Refused("a policy is renamed in once it is saved as a file")
    if node is not None and (found := constant_at(analysis, node)):
        home = analysis.paths.get(id(found.span.source), "")
        return Target(found.kind, found.name, node.span, frozenset((home,)))
    if isinstance(node, tree.Text) and any(node is word for word in uses.agents(analysis.file)):
        return _agent(analysis, node)
    if isinstance(node, tree.Name) and any(node is word for word in uses.constants(analysis.file)):
        raise Refused(f"`{node.text}` is not defined, so that nobody knows what else it is")
    raise Refused("only a `param`, a `let` and an agent can be renamed")


def _agent(analysis: Analysis, node: tree.Text) -> Target:
    assert analysis.resolved is not None
    name = uses.plain(node)
    chain = analysis.resolved.unit.chain()
    homes = frozenset(unit.path for unit in chain if any(uses.blocks(unit.file, name)))
    if not homes:
        raise Refused(f"no file of this policy has a block for the agent `{name}`")
    if name in (analysis.agents or ()):
        raise Refused(f"the agent `{name}` is declared in `policy.toml`; give it its new name there first")
    return Target("agent", name, Span(node.span.source, node.span.start + 1, node.span.end - 1), homes)


def rename(analysis: Analysis, position: types.Position, new: str, project: str) -> types.WorkspaceEdit:
    """The edits that give a name its new form in all files below ``project``. Raises ``Refused``."""
    target = target_at(analysis, position)
    _check_form(target, new)
    changes: dict[str, list[types.TextEdit]] = {}
    for unit, places in occurrences(analysis, target, project):
        _check_place(unit, target, new, places, project)
        for uri, place in (_where(analysis, unit, span) for span in places):
            changes.setdefault(uri, []).append(types.TextEdit(place, new))
    return types.WorkspaceEdit(changes)


def references(analysis: Analysis, position: types.Position, project: str) -> list[types.Location]:
    """Where a name is defined and used; nothing where that cannot be told."""
    try:
        found = list(occurrences(analysis, target_at(analysis, position), project))
    except Refused:
        return []
    return [types.Location(*_where(analysis, unit, span)) for unit, places in found for span in places]


def _where(analysis: Analysis, unit: Unit, span: Span) -> tuple[str, types.Range]:
    if unit.path == analysis.path:
        return analysis.uri, analysis.lines.of(span)
    return uris.from_fs_path(unit.path) or "", Lines(unit.source.text, analysis.encoding).of(span)


def occurrences(analysis: Analysis, target: Target, project: str) -> Iterator[tuple[Unit, list[Span]]]:
    """The files that speak of it, each with the places. Raises ``Refused``."""
    units = _project(analysis, target, project)
    missing = [home for home in sorted(target.homes) if home not in units]
    if missing:
        raise Refused(f"`{target.name}` is defined in `{missing[0]}`, outside of the folder that is open")
    homes = target.homes
    if target.kind == "agent":
        homes = _connected(units, target)
    for _, unit in sorted(units.items()):
        if _knows(unit, target, homes):
            places = list(_places(unit.file, target))
            if places or _unread(unit, target):
                yield unit, places


def _project(analysis: Analysis, target: Target, project: str) -> dict[str, Unit]:
    """The document and the policy files of a folder, those that contain the name, by their real path."""
    units: dict[str, Unit] = {}
    paths = list(islice(policy_files(project), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise Refused(f"there are more than {MOST_FILES} policy files in `{project}`")
    for real in {analysis.path, *map(os.path.realpath, paths)}:
        try:
            text = analysis.source.text if real == analysis.path else analysis.unsaved(real)
            source = read(real, real) if text is None else decode(text.encode("utf-8", "surrogatepass"), real)
        except Unreadable:
            continue
        if target.name in source.text:
            units[real] = Loader(project, Report(), analysis.reader).load(real, source)
    return units


def _connected(units: dict[str, Unit], target: Target) -> frozenset[str]:
    """The files with blocks for the agent that one policy of the project puts together with those we know."""
    homes = set(target.homes)
    groups = [
        {each.path for each in unit.chain() if any(uses.blocks(each.file, target.name))} for unit in units.values()
    ]
    while any(group & homes and not group <= homes for group in groups):
        for group in groups:
            if group & homes:
                homes |= group
    return frozenset(homes)


def _knows(unit: Unit, target: Target, homes: frozenset[str]) -> bool:
    """Does the name mean this very thing in a file?"""
    if target.kind == "agent":
        return any(each.path in homes for each in unit.chain())
    return any(each.path in homes for each in (unit, *unit.imported()))


def _places(file: tree.File, target: Target) -> Iterator[Span]:
    if target.kind == "agent":
        for text in uses.agents(file):
            if uses.plain(text) == target.name:
                yield Span(text.span.source, text.span.start + 1, text.span.end - 1)
        return
    yield from (word.span for word in uses.constants(file) if word.text == target.name)


def _unread(unit: Unit, target: Target) -> tree.Broken | None:
    """A part of a file that cannot be understood and contains the name."""
    word = re.compile(rf"(?<![\w-]){re.escape(target.name)}(?![\w-])")
    return next((node for node in uses.unread(unit.file) if word.search(node.span.text)), None)


# ---- what stands in the way


def _check_form(target: Target, new: str) -> None:
    if target.kind == "agent":
        if not new.strip() or not new.isprintable() or '"' in new or "\\" in new:
            raise Refused("the name of an agent is a text on one line, without quotes and backslashes")
    elif not _NAME.fullmatch(new):
        raise Refused(f"`{new}` is not a name: one begins with a letter, and has letters, digits, `_` and `-`")
    elif new in RESERVED or new == "unlimited":
        raise Refused(f"`{new}` is a word of the language")


def _check_place(unit: Unit, target: Target, new: str, places: list[Span], project: str) -> None:
    """Would the file mean the same with the new name?"""
    shown = os.path.relpath(unit.path, project)
    if broken := _unread(unit, target):
        raise Refused(f"{shown}:{broken.span.line} contains `{target.name}` and cannot be understood; correct it first")
    renamed = target._replace(name=new)
    if target.kind == "agent":
        taken = [each for each in unit.chain() if any(uses.blocks(each.file, new))]
    else:
        taken = [each for each in (unit, *unit.imported()) if _defines(each.file, new)]
    if taken:
        raise Refused(f"`{new}` is defined already, in {os.path.relpath(taken[0].path, project)}")
    text = unit.source.text
    for span in sorted(places, key=lambda span: -span.start):
        text = text[: span.start] + new + text[span.end :]
    before, after = parse(unit.source), parse(Source(unit.source.name, text))
    if len(list(_places(after.file, renamed))) != len(places) or len(after.findings) != len(before.findings):
        raise Refused(f"in {shown} the word `{new}` would be read as something else")


def _defines(file: tree.File, name: str) -> bool:
    return any(
        isinstance(s, tree.Param | tree.Let) and isinstance(s.name, tree.Name) and s.name.text == name
        for s in file.statements
    )
