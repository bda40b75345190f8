"""unused name

A `param` or `let` that nothing uses is usually a line that lost its use, or a misspelling of one.

Why: a host that sets such a `param` changes nothing, and is not told.

Bad:

    policy "chat" lang 1
    let patience = 30s
    limits {
      wall  30s
    }

Good:

    policy "chat" lang 1
    let patience = 30s
    limits {
      wall  patience
    }

Fix: safe or unsafe: it removes the line. That is safe for a `let` of a file that nobody can import, one with limits
for example; another file may use the `let`s of one that only has tools and texts, and a host may set a `param`.
"""

from __future__ import annotations

import re

from policy_lang import tree
from policy_lang.diagnostics import KEEPS, UNSAFE
from policy_lang.removals import whole_line
from policy_lang.report import Report
from policy_lang.resolve.files import Unit
from policy_lang.resolve.names import Definition, Names
from policy_lang.rules.subject import Subject
from policy_lang.source import Span


def check(policy: Subject, report: Report) -> None:
    names = policy.resolved.names
    if not names.own:
        return
    _mark_tests(policy.unit, names)
    unread = {word for span in _broken(policy.unit) for word in re.findall(r"\w+(?:-\w+)*", span.text)}
    for definition in names.own.values():
        if not definition.used and definition.meaning is not None and definition.name not in unread:
            _unused(definition, policy.unit, report)


def _unused(definition: Definition, unit: Unit, report: Report) -> None:
    private = isinstance(definition.statement, tree.Let) and not unit.importable
    report.warn(
        "P319",
        f"`{definition.name}` is never used",
        definition.span,
        "",
        help=f"use it, or remove this `{definition.kind}`",
        fix=whole_line(definition.statement.span),
        safety=KEEPS if private else UNSAFE,
    )


def _mark_tests(unit: Unit, names: Names) -> None:
    """Names in tests and claims count as used."""
    waiting: list[object] = [s for s in unit.file.statements if isinstance(s, tree.Test | tree.Verify)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tree.Name):
            names.find(node.text)
        elif isinstance(node, tree.Node):
            waiting += node.__dict__.values()
        elif isinstance(node, tuple):
            waiting += node


def _broken(unit: Unit) -> list[Span]:
    spans = []
    for statement in unit.file.statements:
        for node in (statement, *getattr(statement, "lines", ())):
            if isinstance(node, tree.Broken):
                spans.append(node.span)
    return spans
