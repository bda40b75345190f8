"""``# policy: allow P307 reason`` above a statement: findings somebody has looked at and accepts.

Comments are not in the tree, so they are read from the text here. An error is never silenced: the
policy would have no meaning.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import NamedTuple

from policy_lang.diagnostics import KEEPS, WARNING, Diagnostic, Edit, Label
from policy_lang.removals import behind
from policy_lang.resolve.files import Unit
from policy_lang.source import Source, Span

_COMMENT = re.compile(r'"(?:\\[^\r\n]|[^"\\\r\n])*"?|#[^\r\n]*')
_MEANT = re.compile(
    r"#[ \t]*policy[ \t]*(?::|=|\b(?:allow|ignore|disable|suppress|noqa|off)\b|.*\bP[0-9]{3}\b)", re.IGNORECASE
)
_INDENT = re.compile(r"[ \t]*")
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
    if not allowed:
        return findings + problems
    silenced = _by_line(allowed)
    shown: list[Diagnostic] = []
    used: set[Suppression] = set()
    for finding in findings:
        span = finding.primary.span
        silent = silenced.get((finding.code, span.line)) if span.source is unit.source else None
        if silent is None:
            shown.append(finding)
            continue
        used.add(silent)
        if finding.is_error or finding.code in kept:
            why = "an error cannot be silenced" if finding.is_error else "the settings let nobody silence this"
            shown.append(finding._replace(secondary=(*finding.secondary, Label(silent.span, why))))
    problems += [_unused(s) for s in allowed if s not in used and (s.code in looked_for or not _has_rule(s.code))]
    return shown + problems


def _by_line(allowed: list[Suppression]) -> dict[tuple[str, int], Suppression]:
    """The suppression of each code at each line, the first where several are for the same statement."""
    found: dict[tuple[str, int], Suppression] = {}
    known: set[tuple[str, range]] = set()  # thousands of comments may stand above one long block
    for suppression in allowed:
        code, lines = suppression.code, suppression.covers
        if (code, lines) not in known:
            known.add((code, lines))
            for line in lines:
                found.setdefault((code, line), suppression)
    return found


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
    starts: list[Span] = []
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
                    _above(unit, source, span),
                )
            )
        elif not allow[2]:
            problems.append(
                _problem(
                    "P901", "a suppression needs a reason", span, "no reason given", f"say why {allow[1]} is right here"
                )
            )
        else:
            starts = starts or _starts(unit)
            found.append(Suppression(allow[1], span, _below(starts, span.end)))
    return found


def _starts(unit: Unit) -> list[Span]:
    """Every statement and every line of a block, in the order in which they begin; a statement before its lines."""
    nodes = [node for each in unit.file.statements for node in (each, *getattr(each, "lines", ()))]
    return sorted((node.span for node in nodes), key=lambda span: span.start)


def _below(starts: list[Span], offset: int) -> range:
    """The lines of the statement, or of the line of a block, that begins next."""
    at = bisect_left(starts, offset, key=lambda span: span.start)
    if at == len(starts):
        return range(0)
    return range(starts[at].line, starts[at].source.line_of(starts[at].end) + 1)


def _above(unit: Unit, source: Source, span: Span) -> tuple[Edit, ...]:
    """The edits that put a comment on a line of its own above the statement it stands behind; none if that is another
    line of a statement than its first, or the end of a block."""
    starts = _starts(unit)
    at = bisect_right(starts, span.start, key=lambda each: each.start)
    line = source.line_of(span.start)
    if at == 0 or starts[at - 1].line != line:
        return ()
    start = source.line_start(span.start)
    indent = _INDENT.match(source.text, start)
    text = f"{indent.group() if indent else ''}{span.text}\n"
    return (Edit(Span(source, start, start), text), *behind(span))


def _line(span: Span) -> Span:
    """The whole line a comment stands on, its end included."""
    source = span.source
    return Span(source, source.line_start(span.start), source.next_line(span.end))
