"""Policy files in one layout.

Text in, text out: what a file means, its comments and what of it cannot be understood stay as they are. Nothing
here knows of a disk or a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from policy_lang import tree
from policy_lang.diagnostics import Diagnostic
from policy_lang.formatting.page import Page
from policy_lang.formatting.reading import NoPolicy, Reading
from policy_lang.formatting.rows import OPTIONS
from policy_lang.parser import parse
from policy_lang.source import Source

__all__ = ["Formatted", "format_source", "formatted"]

BOM = "\ufeff"


class Formatted(NamedTuple):
    """A file's text in its layout, and the lines (first and last, from 1) of the file before that were left alone
    because they cannot be understood. ``untouched``: for their sake the whole file was."""

    text: str
    left: tuple[tuple[int, int], ...] = ()
    untouched: bool = False


def formatted(text: str) -> str:
    """A policy's text in its layout."""
    mark = BOM if text.startswith(BOM) else ""
    return mark + format_source(Source("", text.removeprefix(BOM))).text


def format_source(source: Source) -> Formatted:
    """A policy in its layout. Line ends that are all ``\\r\\n`` stay so; any others become ``\\n``."""
    text = source.text
    everything = ((1, source.line_of(len(text))),)
    try:
        reading = Reading(source)
    except NoPolicy:
        return Formatted(text, everything, untouched=True)
    page = Page(reading)
    made = page.written("\r\n" if "\r\n" in text and text.count("\n") == text.count("\r\n") else "\n")
    if made != text and not _same(reading, Source(source.name, made)):
        return Formatted(text, tuple(page.left), untouched=True)
    return Formatted(made, tuple(page.left))


def _same(before: Reading, after: Source) -> bool:
    """Does a check understand both alike? It reads a broken line by what stands around it, indentation included; where
    the layout decides between two guesses, the writer of the line must."""
    old = (before.tree, []) if before.clean else parse(before.source)[1:]
    new = parse(after)
    return _shape(old[0]) == _shape(new.file) and _told(old[1]) == _told(new.findings)


def _shape(value: Any) -> Any:
    """A tree without its places, the options of limits in one order."""
    if isinstance(value, tuple):
        return [_shape(part) for part in value]
    if not isinstance(value, tree.Node):
        return value
    if isinstance(value, tree.Setting):
        options = sorted(value.options, key=lambda option: OPTIONS.index(type(option)))
        value = tree.Setting(value.span, value.modifier, value.resource, value.value, tuple(options), value.steps)
    return [type(value), *(_shape(getattr(value, name)) for name in value.fields[1:])]


def _told(findings: Iterable[Diagnostic]) -> list[Any]:
    """Findings without their places."""
    return [
        (f.code, f.message, f.help, [label.text for label in (f.primary, *f.secondary)], [e.replacement for e in f.fix])
        for f in findings
    ]
