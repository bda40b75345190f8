"""Texts: escapes, and the placeholders that the engine fills in.

A text keeps its placeholders, ``{{`` included; only the escapes of the notation are resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.core.vocabulary import PLACEHOLDERS
from policy_lang.diagnostics import Edit
from policy_lang.names import nearest, quoted
from policy_lang.parser import RESERVED
from policy_lang.report import Report
from policy_lang.source import Span
from policy_lang.tree import Text

_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|(.))")
_SIMPLE = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*")
_BRACE = re.compile(r"\{\{|\{([^{}]*)(\}?)")


def quote(text: str) -> str:
    """A text as the language writes it, on one line."""
    return f'"{"".join(_escaped(c) for c in text)}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


def client_text(name: str) -> str:
    """The name of a client as the language writes it: in quotes unless it is a plain word."""
    return name if _PLAIN.fullmatch(name) and name not in RESERVED else quote(name)


def unescape(text: Text, report: Report) -> str:
    """The text that a string literal stands for. A wrong escape is reported and kept as written."""
    raw = text.raw[1:-1]
    if "\\" not in raw:
        return raw

    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            point = int(match[1], 16)
            if point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF:
                return chr(point)
        elif match[2] in _SIMPLE:
            return _SIMPLE[match[2]]
        start = text.span.start + 1 + match.start()
        end = start + len(match.group())
        _wrong_escape(match, Span(text.span.source, start, end), report)
        return match.group()

    return _ESCAPE.sub(one, raw)


def _wrong_escape(match: re.Match[str], span: Span, report: Report) -> None:
    if match[1] is not None:
        report.error(
            "P110",
            f"`{match.group()}` is no character",
            span,
            "no such code point",
            help="the last one is `\\u{10FFFF}`",
        )
        return
    label = "unknown escape"
    if match[2] == "u":
        report.error("P110", "`\\u` needs a code point in braces", span, label, help="write it as in `\\u{1F600}`")
        return
    report.error(
        "P110",
        f"`{match.group()}` is not an escape",
        span,
        label,
        help='known are `\\"`, `\\\\`, `\\n`, `\\t` and `\\u{…}`; a backslash itself is `\\\\`',
        fix=(Edit(Span(span.source, span.start, span.start), "\\"),),
    )


def check_placeholders(text: Text, report: Report) -> None:
    """Report every `{…}` that names nothing the engine knows."""
    for match in _BRACE.finditer(text.raw):
        if match.group() == "{{" or text.raw[: match.start()].endswith("\\u"):
            continue
        start = text.span.start + match.start()
        span = Span(text.span.source, start, start + len(match.group()))
        problem = _placeholder_problem(match[1], bool(match[2]))
        if problem:
            message, label, help, better = problem
            fix = (Edit(span, better),) if better else ()
            report.error("P205", message, span, label, help=help, fix=fix)


def placeholders(text: Text) -> Iterator[tuple[str, Span]]:
    """The placeholders in a text that the engine knows, each with its place."""
    for match in _BRACE.finditer(text.raw):
        if match[1] in PLACEHOLDERS and not text.raw[: match.start()].endswith("\\u"):
            start = text.span.start + match.start()
            yield match[1], Span(text.span.source, start, start + len(match.group()))


def placeholder_problem(text: str) -> str:
    """The same judgement of a text that comes from the host; "" if it is sound."""
    for match in _BRACE.finditer(text):
        if match.group() != "{{" and (problem := _placeholder_problem(match[1], bool(match[2]))):
            return problem[0]
    return ""


def _placeholder_problem(name: str, closed: bool) -> tuple[str, str, str, str] | None:
    """Message, label, help and replacement for one brace, or ``None`` if it is a known placeholder."""
    if not closed:
        return "a `{` in a text starts a placeholder", "never closed", "write `{{` for a literal brace", "{{" + name
    if name in PLACEHOLDERS:
        return None
    near = nearest(name.strip(), PLACEHOLDERS)
    if near:
        return f"unknown placeholder `{{{name}}}`", "", f"did you mean `{{{near}}}`?", f"{{{near}}}"
    known = quoted([f"{{{known}}}" for known in PLACEHOLDERS])
    return f"unknown placeholder `{{{name}}}`", f"expected {known}", "write `{{` for a literal brace", ""
