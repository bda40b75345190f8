"""Several files become one policy: what `extends` inherits, replaces and refuses.

A file's limit takes the whole place of the base's limit of the same resource and scope: maximum,
reserve and ladder. Doing so is free if it is not looser, needs `override` if it is, and is never
possible if the base's is `locked`.

*Looser* means: more of the limited resource can be used. That is so if the maximum is larger (or
now unlimited), or if the maximum with its extension is. The other steps do not count: `stop` and
`finalize` part only after the maximum, neither ever admits more of the resource. A limit in a
scope the base does not limit only adds, and is free.

Lines of `finalization` replace the base's line of the same kind, and a rule for a failure takes the
place of the base's rule for the same reason. Thresholds, breakers, tool rules and prices
accumulate; a base's price cannot be changed, for that would loosen its `cost` limit unseen. A tool
rule keeps the mark of its file, since an `allow` lifts a `deny` of the same file only.
"""

from __future__ import annotations

import json
from typing import Any

from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.layer import Layer
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.statements import ThresholdLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.source import Span


class Merged:
    """One policy out of its layers, the outermost base first."""

    def __init__(self, layers: list[Layer], imports: list[Layer], report: Report) -> None:
        self.limits = _limits(layers, report)
        self.final, self.final_origin = _final(layers)
        self.thresholds = _thresholds(layers, report)
        self.failures = _failures(layers)
        self.breakers = _breakers(layers, imports, report)
        self.tools = _tools(layers, imports)
        self.prices = _prices(layers, report)


# ---- limits


def _limits(layers: list[Layer], report: Report) -> list[LimitLine]:
    known: dict[tuple[str, str | None], LimitLine] = {}
    for layer in layers:
        whole = layer is not layers[0] or not layer.unit.wants_base
        for line in layer.limits:
            base = known.get(line.key)
            if base is None:
                if line.override and whole:
                    why = f"no base limits `{line.title}`" if layer is not layers[0] else "this file extends no other"
                    _idle_override(line, why, None, report)
            elif base.data["locked"]:
                if _meaning(line) != _meaning(base):
                    _locked(line, base, report)
                continue
            elif line.override is None and looser(line, base):
                _not_overridden(line, base, report)
            elif line.override is not None and not looser(line, base):
                _idle_override(line, "it is not looser than the base's", base, report)
            known[line.key] = line
    return list(known.values())


def looser(line: LimitLine, base: LimitLine) -> bool:
    """Can more of the resource be used under ``line`` than under ``base``?"""
    return _more(line.data["max"], base.data["max"]) or _more(line.total, base.total)


def _more(a: int | None, b: int | None) -> bool:
    return b is not None and (a is None or a > b)


def _meaning(line: LimitLine) -> dict[str, Any]:
    return {key: value for key, value in line.data.items() if key not in ("origin", "locked")}


def _locked(line: LimitLine, base: LimitLine, report: Report) -> None:
    message = f"`{line.title}` is locked by a base"
    report.error(
        "P316",
        message,
        line.resource_span,
        "cannot be changed",
        Label(_whole(base), "locked here"),
        help="remove this limit",
    )


def _not_overridden(line: LimitLine, base: LimitLine, report: Report) -> None:
    place, label = line.value.span, f"looser than `{base.value.text}`"
    if not _more(line.data["max"], base.data["max"]):
        place = next(step.span for step in line.node.steps if isinstance(step, tree.Extend))
        label = "with this extension, looser than the base"
    start = Span(line.node.span.source, line.node.span.start, line.node.span.start)
    report.error(
        "P338",
        f"loosening the base's `{line.title}` needs `override`",
        place,
        label,
        Label(base.value.span, "the base's limit"),
        help=f"write `override {line.title.split()[0]} {line.value.text}`, or stay within the base",
        fix=(Edit(start, "override "),),
    )


def _idle_override(line: LimitLine, why: str, base: LimitLine | None, report: Report) -> None:
    word = line.override
    if word is None:
        return
    gap = Span(word.span.source, word.span.start, line.resource_span.start)
    labels = (Label(base.value.span, "the base's limit"),) if base else ()
    report.warn(
        "P315",
        f"this `override` changes nothing: {why}",
        word.span,
        "not needed",
        *labels,
        help="remove `override`",
        fix=(Edit(gap, ""),),
    )


def _whole(line: LimitLine) -> Span:
    """From the modifier to the quantity."""
    return Span(
        line.node.span.source,
        line.node.span.start,
        max(line.resource_span.end, min(line.value.span.end, line.node.span.end)),
    )


# ---- the rest


def _final(layers: list[Layer]) -> tuple[dict[str, Any], Span | None]:
    fields: dict[str, Any] = {
        "prefer": [],
        "mode": "proactive",
        "text": None,
        "using": None,
        "tools": "strip",
        "empty_retries": 0,
    }
    place: Span | None = None
    for layer in layers:
        for line in layer.final:
            fields.update(line.fields)
        place = layer.final_span or place
    return fields, place


def _thresholds(layers: list[Layer], report: Report) -> list[ThresholdLine]:
    known: dict[str, tuple[ThresholdLine, Layer]] = {}
    for layer in layers:
        for line in layer.thresholds:
            first = known.setdefault(_plainly(line.data), (line, layer))
            if first[0] is not line and first[1] is layer:
                report.error(
                    "P210",
                    "this threshold is written twice",
                    line.node.span,
                    "again",
                    Label(first[0].node.span, "first here"),
                    help="keep one",
                )
    return [line for line, _ in known.values()]


def _failures(layers: list[Layer]) -> list[FailureLine]:
    """The nearest file's rule for each reason; a base's rule stays for the reasons that are left to it."""
    kept: list[FailureLine] = []
    taken: set[str] = set()
    for layer in reversed(layers):
        own = [(line, [r for r in line.data["reasons"] if r not in taken]) for line in layer.failures]
        kept = [line.only(reasons) for line, reasons in own if reasons] + kept
        taken.update(reason for _, reasons in own for reason in reasons)
    return kept


def _breakers(layers: list[Layer], imports: list[Layer], report: Report) -> list[BreakerLine]:
    """All breakers, the nearest file's last. The same one in two files is one."""
    known: dict[str, tuple[BreakerLine, Layer]] = {}
    for layer in [*imports, *layers]:
        for line in layer.breakers:
            first = known.setdefault(_plainly(line.data), (line, layer))
            if first[0] is not line and first[1] is layer:
                report.error(
                    "P210",
                    "this breaker is written twice",
                    line.node.span.head(2),
                    "again",
                    Label(first[0].node.span.head(2), "first here"),
                    help="keep one",
                )
    return [line for line, _ in known.values()]


def _tools(layers: list[Layer], imports: list[Layer]) -> list[ToolLine]:
    """All rules, each marked with its file: extended ones by distance, imported ones after them by content,
    so that neither the names nor the order of imported files change the policy."""
    groups = [layer.tools for layer in reversed(layers)]
    groups += sorted((layer.tools for layer in imports if layer.tools), key=_content)
    return [line._replace(data={**line.data, "base": number}) for number, lines in enumerate(groups) for line in lines]


def _content(lines: list[ToolLine]) -> list[str]:
    return sorted(_plainly(line.data) for line in lines)


def _plainly(data: dict[str, Any]) -> str:
    """What a rule says, without where it stands."""
    return json.dumps({k: v for k, v in data.items() if k != "origin"}, sort_keys=True)


def _prices(layers: list[Layer], report: Report) -> list[dict[str, Any]]:
    known: dict[str, tuple[dict[str, Any], Span]] = {}
    for layer in layers:
        for data, node in layer.prices:
            first = known.setdefault(data["model"], (data, node.span))
            if any(first[0][field] != data[field] for field in ("input", "cached", "output")):
                report.error(
                    "P339",
                    f"a base prices `{data['model']}` otherwise",
                    node.model.span,
                    "cannot be changed",
                    Label(first[1], "the base's price"),
                    help="remove this line, or change the base",
                )
    return [data for data, _ in known.values()]
