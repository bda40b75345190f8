"""Several files become one policy: what `extends` inherits and replaces.

Limits replace the base's limits of the same resource and scope, as far as `overriding` lets them. Lines of
`finalization` replace the base's line of the same kind, and a rule for a failure takes the place of the base's rule for
the same reason. Thresholds, breakers, tool rules and prices accumulate; a base's price cannot be changed, for that
would loosen its `cost` limit unseen. A tool rule keeps the mark of its file, since an `allow` lifts a `deny` of the
same file only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from policy_lang.diagnostics import Label
from policy_lang.report import Report
from policy_lang.resolve.breakers import BreakerLine
from policy_lang.resolve.failures import FailureLine
from policy_lang.resolve.layer import Layer
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.overriding import Known, settle
from policy_lang.resolve.rules import Rules
from policy_lang.resolve.statements import ThresholdLine
from policy_lang.resolve.tools import ToolLine
from policy_lang.source import Span


class Merged:
    """One policy out of its layers, the outermost base first."""

    def __init__(self, layers: list[Layer], imports: list[Layer], report: Report) -> None:
        self.limits = _limits(layers, report)
        self.final, self.final_origin = _final(layers)
        self.thresholds = thresholds_of(layers, report)
        self.failures = failures_of(layers)
        self.breakers = _breakers(layers, imports, report)
        self.tools = _tools(layers, imports)
        self.prices = _prices(layers, report)


# ---- limits


def _limits(layers: list[Layer], report: Report) -> list[LimitLine]:
    known: Known = {}
    for layer in layers:
        settle(known, layer.limits, idle_words(layers, layer), report)
    return list(known.values())


def idle_words(layers: list[Layer], layer: Layer) -> str:
    """What to say of an `override` in this file of what no base limits; nothing if the base could not be read."""
    if layer is not layers[0]:
        return "no base limits `{}`"
    return "" if layer.unit.wants_base else "this file extends no other"


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


def thresholds_of(layers: Sequence[Rules], report: Report) -> list[ThresholdLine]:
    """The thresholds of all; the same one in two files is one."""
    known: dict[str, tuple[ThresholdLine, Rules]] = {}
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


def failures_of(layers: Sequence[Rules]) -> list[FailureLine]:
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
