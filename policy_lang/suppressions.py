"""``# policy: allow P307 reason`` above a statement: findings somebody has looked at and accepts.

Comments are not in the tree, so they are read from the text here. An error is never silenced: the
policy would have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from policy_lang.diagnostics import KEEPS, WARNING, Diagnostic, Edit, Label
from policy_lang.resolve.files import Unit
from policy_lang.source import Source, Span

_COMMENT = re.compile(r'"(?:\\[^\r\n]|[^"\\\r\n])*"?|#[^\r\n]*')
_MEANT = re.compile(
    r"#[ \t]*policy[ \t]*(?::|=|\b(?:allow|ignore|disable|suppress|noqa|off)\b|.*\bP[0-9]{3}\b)", re.IGNORECASE
)
_ALLOW = re.compile(r"#[ \t]*policy:[ \t]*allow[ \t]+(P[0-9]{3})(?:[ \t]+(\S.*))?[ \t]*")


class Suppression(NamedTuple):
    code: str
    span: Span
    covers: range
    """Lines of the statement below it."""


def suppress(
    unit: Unit, findings: list[Diagnostic], looked_for: Collection[str], kept: Collection[str] = ()
) -> list[Diagnostic]:
    """The findings of a file without those it allows, and with what is wrong with its suppressions.

    ``looked_for`` are the codes of rules that were looked for: of another nobody knows whether its suppression is of
    use. What is in ``kept`` cannot be silenced.
    """
    if "policy" not in unit.source.text or "#" not in unit.source.text:
        return findings
    problems: list[Diagnostic] = []
    allowed = _suppressions(unit, problems)
    shown: list[Diagnostic] = []
    used: set[Suppression] = set()
    for finding in findings:
        span = finding.primary.span
        silent = next(
            (s for s in allowed if s.code == finding.code and span.source is unit.source and span.line in s.covers),
            None,
        )
        if silent is None:
            shown.append(finding)
            continue
        used.add(silent)
        if finding.is_error or finding.code in kept:
            why = "an error cannot be silenced" if finding.is_error else "the settings let nobody silence this"
            shown.append(finding._replace(secondary=(*finding.secondary, Label(silent.span, why))))
    problems += [_unused(s) for s in allowed if s not in used and (s.code in looked_for or not _has_rule(s.code))]
    return shown + problems


def _has_rule(code: str) -> bool:
    """Is it the code of a rule, which may or may not run? All else is looked for whenever a file is read."""
    from policy_lang.rules import BY_CODE

    return code in BY_CODE


def _unused(suppression: Suppression) -> Diagnostic:
    from policy_lang.catalogue import title

    edits = (Edit(_line(suppression.span), ""),)
    if title(suppression.code) is None:
        message = f"no finding has the code {suppression.code}"
        return _problem("P900", message, suppression.span, "silences nothing", "remove it", edits)
    message = f"this suppression of {suppression.code} silences nothing"
    return _problem("P900", message, suppression.span, "unused", "remove it", edits)


def _problem(code: str, message: str, span: Span, label: str, help: str, fix: tuple[Edit, ...] = ()) -> Diagnostic:
    return Diagnostic(code, message, Label(span, label), (), help, fix, WARNING, KEEPS)


def _suppressions(unit: Unit, problems: list[Diagnostic]) -> list[Suppression]:
    source, found = unit.source, []
    for match in _COMMENT.finditer(source.text):
        if not match.group().startswith("#") or not _MEANT.match(match.group()):
            continue
        text = match.group().rstrip()
        span = Span(source, match.start(), match.start() + len(text))
        allow = _ALLOW.fullmatch(text)
        if allow is None:
            help = "write it as in `# policy: allow P307 why it is right here`"
            problems.append(
                _problem("P902", "this suppression cannot be read", span, "expected `allow`, a code and a reason", help)
            )
        elif source.text[source.line_start(span.start) : span.start].strip():
            problems.append(
                _problem(
                    "P902",
                    "a suppression stands on a line of its own",
                    span,
                    "behind a statement",
                    "move it above the statement",
                )
            )
        elif not allow[2]:
            problems.append(
                _problem(
                    "P901", "a suppression needs a reason", span, "no reason given", f"say why {allow[1]} is right here"
                )
            )
        else:
            found.append(Suppression(allow[1], span, _below(unit, source, span.end)))
    return found


def _below(unit: Unit, source: Source, offset: int) -> range:
    """The lines of the statement, or of the line of a block, that begins next."""
    best: Span | None = None
    for statement in unit.file.statements:
        for node in (statement, *getattr(statement, "lines", ())):
            if node.span.start >= offset and (best is None or node.span.start < best.start):
                best = node.span
    return range(best.line, source.line_of(best.end) + 1) if best else range(0)


def _line(span: Span) -> Span:
    """The whole line a comment stands on, its end included."""
    source = span.source
    return Span(source, source.line_start(span.start), source.next_line(span.end))
