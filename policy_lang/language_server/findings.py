"""Findings as an editor shows them."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from lsprotocol import types
from pygls import uris

from policy_lang.diagnostics import ERROR, NOTE, SEVERITIES, WARNING, Diagnostic, Label
from policy_lang.language_server.analysis import Analysis
from policy_lang.source import Source

SOURCE: Final = "policy"

MOST_TOLD: Final = 1_000
"""Findings of one document: an editor shows no more, and would be kept busy by them at each key."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_PAGES = (
    os.path.join(os.path.dirname(_HERE), "rule_pages"),  # an installed wheel
    os.path.join(os.path.dirname(os.path.dirname(_HERE)), "docs", "rules"),  # a source checkout
)

_SEVERITIES = {
    ERROR: types.DiagnosticSeverity.Error,
    WARNING: types.DiagnosticSeverity.Warning,
    NOTE: types.DiagnosticSeverity.Information,
}
_IDLE = frozenset({"P313", "P315", "P319", "P331", "P332", "P367", "P368", "P900"})
"""Codes of what has no effect: an editor shows it faded."""


def diagnostics(analysis: Analysis) -> list[types.Diagnostic]:
    """All findings, each with its place in the document; of very many the gravest, and how many more there are."""
    shown = analysis.findings
    if len(shown) > MOST_TOLD:
        shown = sorted(shown, key=lambda finding: SEVERITIES.index(finding.severity))[:MOST_TOLD]
    found = [diagnostic(finding, analysis) for finding in shown]
    top = types.Range(types.Position(0, 0), types.Position(0, 0))
    if more := len(analysis.findings) - len(shown):
        told = f"{more:,} more findings are not shown; `policy lint` shows them"
        found.append(types.Diagnostic(top, told, types.DiagnosticSeverity.Information, source=SOURCE))
    if analysis.trouble:
        found.insert(0, types.Diagnostic(top, analysis.trouble, types.DiagnosticSeverity.Error, source=SOURCE))
    return found


def diagnostic(finding: Diagnostic, analysis: Analysis) -> types.Diagnostic:
    """One finding. What is wrong in another file stands where that file is asked for, its true place related."""
    span = finding.primary.span
    message = finding.message
    related = list(finding.secondary)
    if span.source is not analysis.source:
        message = f"{span.source.name}:{span.line}: {message}"
        related.insert(0, finding.primary._replace(text=finding.primary.text or finding.message))
        where = analysis.asked_at(span.source)
        place = analysis.lines.of(where) if where else types.Range(types.Position(0, 0), types.Position(0, 0))
    else:
        place = analysis.lines.of(span)
        message += f": {finding.primary.text}" if finding.primary.text else ""
    message += f"\n{finding.help}" if finding.help else ""
    page = page_uri(finding.code)
    return types.Diagnostic(
        place,
        message,
        _SEVERITIES[finding.severity],
        finding.code,
        types.CodeDescription(page) if page else None,
        SOURCE,
        [types.DiagnosticTag.Unnecessary] if finding.code in _IDLE and not finding.is_error else None,
        [each for label in related if (each := _related(label, analysis))] or None,
    )


@cache
def page_uri(code: str) -> str | None:
    """Where the page about a code can be opened, if it came with this installation."""
    places = (os.path.join(folder, f"{code}.md") for folder in _PAGES)
    return next((uris.from_fs_path(place) for place in places if os.path.exists(place)), None)


def _related(label: Label, analysis: Analysis) -> types.DiagnosticRelatedInformation | None:
    source = label.span.source
    uri = uri_of(analysis, label.span.source)
    if uri is None:
        return None
    return types.DiagnosticRelatedInformation(
        types.Location(uri, analysis.lines_of(source).of(label.span)), label.text or "here"
    )


def uri_of(analysis: Analysis, source: Source) -> str | None:
    """Where a source is, for the editor; ``None`` for one in no file that it could open."""
    if source is analysis.source:
        return analysis.uri
    path = analysis.paths.get(id(source))
    if path is None and os.path.isabs(source.name):  # settings, whose name is their path
        path = source.name
    return uris.from_fs_path(path) if path else None
