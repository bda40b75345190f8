"""A limit over another: when a nearer line may take the place of a farther one.

A line takes the whole place of the base's limit of the same resource and scope: maximum, reserve and ladder. Doing so
is free if it is not looser, needs `override` if it is, and is never possible if the base's is `locked`.

*Looser* means: more of the limited resource can be used. That is so if the maximum is larger (or now unlimited), if the
maximum with its extension and with what people may grant is, or if the time that people take to answer counts no more.
The other steps do not count: `stop` and `finalize` part only after the maximum, neither ever admits more of the
resource. A limit in a scope the base does not limit only adds, and is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from policy_lang import tree
from policy_lang.diagnostics import KEEPS, UNSAFE, Edit, Label
from policy_lang.removals import whole_line
from policy_lang.report import Report
from policy_lang.resolve.limits import LimitLine, stated
from policy_lang.source import Span

Known: TypeAlias = dict[tuple[str, str | None], LimitLine]
"""Limits by resource and scope."""


def settle(known: Known, lines: Iterable[LimitLine], idle: str, report: Report) -> None:
    """Put the lines of a nearer file over those known of farther ones.

    ``idle`` is what to say of an `override` where there is nothing to override, with ``{}`` for the limit.
    """
    for line in lines:
        base = known.get(line.key)
        if base is None:
            if line.override and idle:
                idle_override(line, idle.format(line.title), None, report)
        elif base.data["locked"]:
            if _meaning(line) != _meaning(base):
                locked(line, base, report)
            continue
        else:
            check_override(line, base, report)
        known[line.key] = line


def check_override(line: LimitLine, base: LimitLine, report: Report, whose: str = "base") -> None:
    """Report a loosening without `override`, and an `override` that loosens nothing."""
    if line.override is None and looser(line, base):
        _not_overridden(line, base, whose, report)
    elif line.override is not None and not looser(line, base):
        idle_override(line, f"it is not looser than the {whose}'s", base, report, whose)


def looser(line: LimitLine, base: LimitLine) -> bool:
    """Can more of the resource be used under ``line`` than under ``base``?"""
    return _more(line.data["max"], base.data["max"]) or _more(line.total, base.total) or _waits_longer(line, base)


def _waits_longer(line: LimitLine, base: LimitLine) -> bool:
    """Does time pass uncounted while people are awaited, and counted under ``base``?"""
    return bool(base.data.get("counting_approvals") and not line.data.get("counting_approvals"))


def _more(a: int | None, b: int | None) -> bool:
    return b is not None and (a is None or a > b)


def _meaning(line: LimitLine) -> dict[str, Any]:
    return {key: value for key, value in line.data.items() if key not in ("origin", "locked")}


def locked(line: LimitLine, base: LimitLine, report: Report, whose: str = "base") -> None:
    """Report a change of a locked limit. ``whose`` is it: a base's, or that of the policy around an agent's block?"""
    message = f"`{line.title}` is locked by {'a base' if whose == 'base' else f'the {whose}'}"
    report.error(
        "P316",
        message,
        line.resource_span,
        "cannot be changed" if whose == "base" else "cannot be loosened",
        Label(_whole(base), "locked here"),
        help="remove this limit" if whose == "base" else f"stay within the {whose}'s limit, or remove this one",
        fix=whole_line(line.node.span) if whose == "base" else (),
    )


def _not_overridden(line: LimitLine, base: LimitLine, whose: str, report: Report) -> None:
    place, label = line.value.span, f"looser than `{base.value.text}`"
    if not _more(line.data["max"], base.data["max"]) and not _more(line.total, base.total):
        label = f"time that people take to answer counts in the {whose}'s"
    elif not _more(line.data["max"], base.data["max"]):
        step = next(step for step in line.node.steps if isinstance(step, tree.Extend | tree.Ask))
        more = "this extension" if isinstance(step, tree.Extend) else "what people may grant"
        place, label = step.span, f"with {more}, looser than the {whose}"
    start = Span(line.node.span.source, line.node.span.start, line.node.span.start)
    report.error(
        "P338",
        f"loosening the {whose}'s `{line.title}` needs `override`",
        place,
        label,
        Label(base.value.span, f"the {whose}'s limit"),
        help=f"write `override {line.title.split()[0]} {line.value.text}`, or stay within the {whose}",
        fix=(Edit(start, "override "),),
    )


def idle_override(line: LimitLine, why: str, base: LimitLine | None, report: Report, whose: str = "base") -> None:
    """Report an `override` that is not needed."""
    word = line.override
    if word is None:
        return
    gap = Span(word.span.source, word.span.start, line.resource_span.start)
    labels = (Label(base.value.span, f"the {whose}'s limit"),) if base else ()
    report.warn(
        "P315",
        f"this `override` changes nothing: {why}",
        word.span,
        "not needed",
        *labels,
        help="remove `override`",
        fix=(Edit(gap, ""),),
        safety=KEEPS if stated(line) and (base is None or stated(base)) else UNSAFE,
    )


def _whole(line: LimitLine) -> Span:
    """From the modifier to the quantity."""
    return Span(
        line.node.span.source,
        line.node.span.start,
        max(line.resource_span.end, min(line.value.span.end, line.node.span.end)),
    )
