"""The worst case of a policy as a table for people, and as data for programs. Text only."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from engine.core.vocabulary import RESOURCES
from engine.verify.sheet import AMOUNTS, Line, Sheet
from policy_lang.quantities import duration_text, money_text
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain

VERSION = 1
"""Counts changes of the JSON that take something away."""

_WIDTH = 108


def report(path: str, sheets: Sequence[Sheet], paint: Paint = plain) -> str:
    """All sheets of one file, a table for each."""
    parts = [_table(path, sheet, paint) for sheet in sheets]
    return "\n\n".join(parts)


def document(path: str, sheets: Sequence[Sheet]) -> dict[str, Any]:
    """The same as data; numbers in the units of the language's JSON (tokens, micro-dollars, milliseconds)."""
    return {"file": path, "sheets": [_data(sheet) for sheet in sheets]}


def _table(path: str, sheet: Sheet, paint: Paint) -> str:
    whose = f'an agent "{sheet.agent}"' if sheet.agent else "a run"
    lines = [paint(clean(f"{path}: the worst case of {whose}"), "strong")]
    blocks = (sheet.run, sheet.clients, sheet.tree)
    name = max(len(clean(line.what)) for block in blocks for line in block)
    number = max(len(_number(line)) for block in blocks for line in block)
    for block in blocks:
        for line in block:
            lines += _row(line, name, number, paint)
    if any(line.resource in AMOUNTS and line.most is not None for line in sheet.run):
        lines.append(paint(f"  {_beyond(sheet)}", "dim"))
    seen = (
        f"the counts are the limits' own numbers ({sheet.cut})" if sheet.cut else f"{sheet.states:,} states looked at"
    )
    on_top = "a host that repeats requests by itself, and pauses of a provider, come on top"
    lines.append(paint(f"  {seen}; {on_top}", "dim"))
    return "\n".join(lines)


def _beyond(sheet: Sheet) -> str:
    """What may be used beyond an amount: nothing where sizes are told and kept, else the replies in flight."""
    own, whole = sheet.in_flight
    tree = "" if whole == own else f", in a tree {'any number' if whole is None else f'{whole:,}'}"
    return (
        f"beyond an amount of tokens or cost goes only what replies in flight take: {own}{tree}; and what tools report"
    )


def _row(line: Line, name: int, number: int, paint: Paint) -> list[str]:
    head = f"  {clean(line.what):<{name}}  {_number(line):>{number}}  "
    behind = "; ".join(part for part in (clean(", ".join(line.by)), line.why) if part)
    first, *rest = textwrap.wrap(behind, max(40, _WIDTH - len(head)), break_on_hyphens=False) or [""]
    shown = paint(first, "dim") if line.most is not None else paint(first, "secondary")
    return [(head + shown).rstrip(), *(" " * len(head) + paint(text, "dim") for text in rest)]


def _number(line: Line) -> str:
    if line.most is None:
        return "unbounded"
    unit = RESOURCES[line.resource].unit if line.resource in RESOURCES else "count"
    return {"duration": duration_text, "money": money_text}.get(unit, "{:,}".format)(line.most)


def _data(sheet: Sheet) -> dict[str, Any]:
    return {
        "agent": sheet.agent or None,
        "run": [_line(line) for line in sheet.run],
        "clients": [_line(line) for line in sheet.clients],
        "tree": [_line(line) for line in sheet.tree],
        "in_flight": list(sheet.in_flight),
        "states": sheet.states,
        "exact": not sheet.cut,
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "what": line.what,
        "resource": line.resource,
        "most": line.most,
        "by": list(line.by),
        "why": line.why or None,
    }
