"""Fixes as what an editor offers to do: each by itself, and all that are safe at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lsprotocol import types

from policy_lang import source as disk
from policy_lang.diagnostics import Diagnostic, Edit
from policy_lang.fixing import Files, Fixer, fixable
from policy_lang.fixing.edits import in_line_ends
from policy_lang.language_server import layout
from policy_lang.language_server.analysis import Analysis
from policy_lang.language_server.findings import diagnostic, uri_of
from policy_lang.linting import Linter
from policy_lang.settings import SettingsError

QUICK: Final = types.CodeActionKind.QuickFix
ALL: Final = "source.fixAll.policy"
KINDS: Final = (QUICK, ALL)


def actions(analysis: Analysis, wanted: types.Range, only: Sequence[str] | None = None) -> list[types.CodeAction]:
    """What can be done about the findings in a range, and what about the whole document. ``only`` names kinds of
    actions, or what kinds begin with; all of them if nothing is said."""
    made: list[types.CodeAction] = []
    if _asked(str(QUICK.value), only):
        made += _of_range(analysis, wanted)
    if _asked(ALL, only) and (edits := _fixed(analysis)):
        edit = types.WorkspaceEdit({analysis.uri: edits})
        made.append(types.CodeAction("do all that is safe to do", ALL, edit=edit))
    return made


def _asked(kind: str, only: Sequence[str] | None) -> bool:
    """Is it one of the kinds, where `source` is `source.fixAll` too?"""
    return not only or any(not word or kind == word or kind.startswith(f"{word}.") for word in only)


# ---- one by one


def _of_range(analysis: Analysis, wanted: types.Range) -> list[types.CodeAction]:
    start, end = analysis.lines.offset(wanted.start), analysis.lines.offset(wanted.end)
    made: list[types.CodeAction] = []
    for finding in analysis.findings:
        if finding.fix and _touches(finding, analysis, start, end) and (edit := _edit(finding.fix, analysis)):
            shown = diagnostic(finding, analysis)
            made.append(
                types.CodeAction(_title(finding), QUICK, [shown], is_preferred=finding.is_safe or None, edit=edit)
            )
    return made


def _touches(finding: Diagnostic, analysis: Analysis, start: int, end: int) -> bool:
    span = finding.primary.span
    where = span if span.source is analysis.source else analysis.asked_at(span.source)
    return where is not None and where.start <= end and start <= where.end


def _title(finding: Diagnostic) -> str:
    """What the edits do, in the words of the help where it is an order, else by the text that they write."""
    if finding.help and not finding.help.endswith("?"):
        return f"{finding.help} ({finding.code})"
    texts = [edit.replacement.strip() for edit in finding.fix if edit.replacement.strip()]
    what = f"write `{texts[0]}`" if len(texts) == 1 and "\n" not in texts[0] else "do what the message says"
    return f"{what} ({finding.code})"


def _edit(fix: Sequence[Edit], analysis: Analysis) -> types.WorkspaceEdit | None:
    """All edits or none."""
    changes: dict[str, list[types.TextEdit]] = {}
    for edit in fix:
        source = edit.span.source
        uri = uri_of(analysis, source)
        if uri is None:
            return None
        place = analysis.lines_of(source).of(edit.span)
        changes.setdefault(uri, []).append(types.TextEdit(place, in_line_ends(edit.replacement, source.text)))
    return types.WorkspaceEdit(changes)


# ---- all at once


def _fixed(analysis: Analysis) -> list[types.TextEdit]:
    """What `policy fix` would change in the document, with all that the editor has open."""
    name = analysis.source.name
    if analysis.resolved is None or not any(fixable(f, name, unsafe=False) for f in analysis.findings):
        return []
    text = analysis.source.text
    if analysis.path:
        name = analysis.path
        files = Files(Linter(root=analysis.judged_from), lambda _: text, analysis.reader)
    else:
        files = Files.of_text(name, text)
    try:
        Fixer(files, [name]).run()
        return layout.difference(analysis, files.text(name))
    except (SettingsError, disk.Unreadable):
        return []
