"""placeholder that nothing fills in

What a text can say depends on where it stands. A limit has `{left}`, `{used}`, `{limit}` and `{resource}`, and no
tool; a `deny` or a breaker has a `{tool}`, and no numbers; the `limit` of a tool has all but `{resource}`. The final
call after a failed call or because of a breaker has `{resource}`, the reason, and nothing else.

Why: the model reads the braces as they are written.

Bad:

    policy "chat" lang 1
    limits {
      tool_iterations  5  then finalize "You cannot use {tool} again. Answer now."
    }

Good:

    policy "chat" lang 1
    limits {
      tool_iterations  5  then finalize "You have used your {limit} rounds. Answer now."
    }

Fix: none; what the text should say is yours to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.resolve.names import String
from policy_lang.rules.subject import Subject
from policy_lang.source import Span
from policy_lang.texts import placeholders

_LIMIT = ("left", "used", "limit", "resource")
_OCCASION = ("resource",)
_TOOL = ("tool",)
_TOOL_LIMIT = ("tool", "left", "used", "limit")


def check(policy: Subject, report: Report) -> None:
    for statement in policy.statements:
        for phrase, known in _texts(statement):
            _judge(phrase, known, policy, report)


def _texts(node: tree.Node) -> Iterator[tuple[tree.Phrase | None, tuple[str, ...]]]:
    """The texts of a statement, each with what can be filled in there. Those of `mode reactive` know everything."""
    if isinstance(node, tree.Limits | tree.Agent | tree.Breaker):
        for line in node.lines:
            yield from _texts(line)
    elif isinstance(node, tree.Setting):
        yield from _finals(node.steps, _LIMIT)
    elif isinstance(node, tree.On):
        unknown = isinstance(node.what, tree.Name) and node.what.text == "unknown_tool"
        yield from _finals(node.steps, _LIMIT if unknown else _OCCASION)
    elif isinstance(node, tree.Threshold) and isinstance(node.action, tree.Name) and node.action.text == "tell":
        yield node.text, _LIMIT
    elif isinstance(node, tree.WhenOpen):
        yield node.text, _TOOL
    elif isinstance(node, tree.WhenOpenEnding):
        yield from _finals((node.step,), _OCCASION)
    elif isinstance(node, tree.Tool):
        for clause in node.clauses:
            if isinstance(clause, tree.Deny):
                yield clause.text, _TOOL
            elif isinstance(clause, tree.ToolLimit):
                yield clause.text, _TOOL_LIMIT


def _finals(
    steps: tuple[tree.Step, ...], known: tuple[str, ...]
) -> Iterator[tuple[tree.Phrase | None, tuple[str, ...]]]:
    yield from ((step.text, known) for step in steps if isinstance(step, tree.Finalize))


def _judge(phrase: tree.Phrase | None, known: tuple[str, ...], policy: Subject, report: Report) -> None:
    if isinstance(phrase, tree.Text):
        for name, span in placeholders(phrase) if "{" in phrase.raw else ():
            if name not in known:
                _unfilled(name, span, known, report)
    elif isinstance(phrase, tree.Name):
        names = policy.resolved.names
        found = names.own.get(phrase.text) or names.imported.get(phrase.text)
        if found is None or not isinstance(found.meaning, String) or not isinstance(found.statement.value, tree.Text):
            return
        for name, span in placeholders(found.statement.value):
            if name not in known:
                _unfilled(name, phrase.span, known, report, Label(span, f"`{found.name}` stands for this"))
                return


def _unfilled(name: str, span: Span, known: tuple[str, ...], report: Report, *why: Label) -> None:
    report.warn(
        "P377",
        f"nothing is filled in for `{{{name}}}` here",
        span,
        "sent as it is written",
        *why,
        help=f"known here: {quoted([f'{{{each}}}' for each in known], 'and')}",
    )
