"""``breaker "GLOB" { … }``: when the tools it matches are switched off, for how long, and what happens then."""

from __future__ import annotations

from typing import Any, NamedTuple

from policy_lang import tree
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.quantities import COUNT, DURATION, PERCENT
from policy_lang.removals import behind, whole_line
from policy_lang.report import Report
from policy_lang.resolve.limits import origin
from policy_lang.resolve.steps import finalize_step
from policy_lang.resolve.values import Amount, Use, Values
from policy_lang.source import Span

MAX_WINDOW = 64
"""Executions that a detector remembers at most. The model of the policy says the same."""

DETECTORS = {
    "same_args": (COUNT, False),
    "alternating": (COUNT, False),
    "failures": (COUNT, False),
    "same_result": (COUNT, False),
    "failure_rate": (PERCENT, True),
    "slow": (DURATION, True),
}
"""Dimension of the first quantity, and whether `of N` follows."""

_AT_ONCE = {
    "same_args": ("trips at the first failure, whatever its arguments", "`failures 1` says that one failure is enough"),
    "same_result": ("trips at the first execution, whatever it brings", "one result alone repeats nothing"),
}


_WORDS = {
    tree.Trip: "trip",
    tree.ResetNever: "reset",
    tree.ResetAfter: "reset",
    tree.WhenOpen: "when_open",
    tree.WhenOpenEnding: "when_open",
    tree.Count: "count",
    tree.Keyed: "per",
    tree.Apply: "apply",
}
"""The word that a line begins with; a breaker has each once, and each detector."""


class BreakerLine(NamedTuple):
    """A breaker as one file states it. ``data`` has the shape of the policy's JSON; ``trips`` holds the nodes of
    ``data["trips"]``, one for one."""

    data: dict[str, Any]
    node: tree.Breaker
    trips: tuple[tree.Trip, ...]


def breaker(block: tree.Breaker, values: Values) -> BreakerLine | None:
    """Judge one breaker. ``None`` if it is too wrong to mean anything."""
    glob = values.plain(block.glob, "the pattern of a breaker", 'write `"*"` for every tool')
    lines = _once(block, values.report)
    detectors: list[dict[str, Any]] = []
    trips: list[tree.Trip] = []
    for line in lines:
        if isinstance(line, tree.Trip) and (detector := _detector(line, values)):
            detectors.append(detector)
            trips.append(line)
    data: dict[str, Any] = {
        "glob": glob,
        "trips": detectors,
        "reset": None,
        "probe": None,
        "when_open": "skip",
        "text": None,
        "using": None,
        "count_denied": "nothing",
        "per_args": False,
        "apply": "round_end",
        "origin": origin(block.span),
    }
    for line in lines:
        data.update(_fields(line, values))
    _check_whole(block, data, values.report)
    return BreakerLine(data, block, tuple(trips)) if glob is not None and detectors else None


def _once(block: tree.Breaker, report: Report) -> list[tree.BreakerLine]:
    """The lines of the block, without what is written again."""
    seen: dict[str, tree.BreakerLine] = {}
    for line in block.lines:
        if isinstance(line, tree.Broken):
            continue
        kind = _WORDS.get(type(line), "")
        if isinstance(line, tree.Trip) and isinstance(line.detector, tree.Name):
            kind = f"trip {line.detector.text}"
        if kind in seen:
            label = Label(seen[kind].span, "first here")
            report.error("P210", f"`{kind}` is written twice", line.span, "again", label, help="keep one")
        else:
            seen[kind] = line
    return list(seen.values())


def _check_whole(block: tree.Breaker, data: dict[str, Any], report: Report) -> None:
    """What the lines of one breaker do to each other."""
    if not any(isinstance(line, tree.Trip | tree.Broken) for line in block.lines):
        report.error(
            "P101",
            "a breaker needs a `trip`",
            block.span.head(2),
            "never trips",
            help="say when the tool is switched off, as in `trip same_args 3`",
        )
    if data["when_open"] == "hide" and data["per_args"]:
        line = next(x for x in block.lines if isinstance(x, tree.WhenOpen))
        keyed = next(x for x in block.lines if isinstance(x, tree.Keyed))
        report.error(
            "P209",
            "`per args` leaves the tool itself on, so it cannot be hidden",
            line.action.span,
            "has no meaning here",
            Label(keyed.span, "switches single arguments off"),
            help="write `skip`, or remove `per args`",
        )


# ---- detectors


def _detector(line: tree.Trip, values: Values) -> dict[str, Any] | None:
    kind = values.word(line.detector, tuple(DETECTORS), "detector")
    if kind is None:
        return None
    dimension, windowed = DETECTORS[kind]
    first = values.amount(line.value, Use(f"`{kind}`", dimension, line.detector.span, least=1))
    window = values.amount(line.of, Use("`of`", COUNT, least=1))
    if not _window_fits(line, kind, first, values.report):
        return None
    size = window if windowed else first
    if first is None or size is None or not _amounts_fit(kind, first, size, values.report):
        return None
    _trips_at_once(kind, size, values.report)
    return {
        "kind": kind,
        "n": size.value,
        "percent": first.value if dimension == PERCENT else None,
        "ms": first.value if dimension == DURATION else None,
    }


def _window_fits(line: tree.Trip, kind: str, first: Amount | None, report: Report) -> bool:
    windowed = DETECTORS[kind][1]
    if windowed and line.of is None:
        example = first.text if first else "50%" if kind == "failure_rate" else "10s"
        report.error(
            "P101",
            f"`{kind}` needs a window",
            line.span,
            "expected `of` and a count behind it",
            help=f"write it as in `trip {kind} {example} of 10`",
        )
        return False
    if not windowed and line.of is not None:
        of = Span(line.span.source, line.value.span.end, line.of.span.end)
        report.error(
            "P209",
            f"`{kind}` takes no window",
            line.of.span,
            "has no meaning here",
            help="remove it",
            fix=(Edit(of, ""),),
            safety=SAYS,
        )
        return False
    return True


def _amounts_fit(kind: str, first: Amount, size: Amount, report: Report) -> bool:
    if kind == "failure_rate" and (first.value or 0) > 100:
        report.error("P207", "more than 100% never fail", first.span, "expected 1% to 100%")
        return False
    n = size.value or 0
    if n > MAX_WINDOW:
        report.error("P207", f"a breaker looks back {MAX_WINDOW} executions at most", size.span, "larger than that")
        return False
    if kind == "alternating" and (n < 4 or n % 2):
        better = str(max(4, n + n % 2))
        report.error(
            "P303",
            "an alternating window is even and at least 4",
            size.span,
            "can never be A-B-A-B",
            help=f"write `{better}`",
            fix=_number(size, better),
        )
        return False
    return True


def _trips_at_once(kind: str, size: Amount, report: Report) -> None:
    if size.value == 1 and kind in _AT_ONCE:
        what, why = _AT_ONCE[kind]
        report.warn(
            "P304", f"`{kind} 1` {what}", size.span, "", help=f"write `2` or more; {why}", fix=_number(size, "2")
        )


def _number(amount: Amount, better: str) -> tuple[Edit, ...]:
    """The edit that writes another number, if it stands there as one."""
    return (Edit(amount.span, better),) if amount.text[:1].isdigit() else ()


# ---- the other lines


def _fields(line: tree.BreakerLine, values: Values) -> dict[str, Any]:
    """The fields that a line sets; none for what is wrong, or for a detector."""
    match line:
        case tree.ResetAfter():
            return _reset(line, values)
        case tree.WhenOpen():
            return _when_open(line, values)
        case tree.WhenOpenEnding(step=tree.Finalize() | tree.FinalizeUsing() as step):
            made = finalize_step(step, values)
            return {"when_open": "finalize", "text": made["text"], "using": made["using"]}
        case tree.WhenOpenEnding():
            return {"when_open": "stop"}
        case tree.Count():
            what = values.word(line.what, ("denied",), "outcome")
            verdict = values.word(line.verdict, ("failure", "success", "nothing"), "verdict")
            return {"count_denied": verdict} if what and verdict else {}
        case tree.Keyed():
            return {"per_args": True} if values.word(line.by, ("args",), "key") else {}
        case tree.Apply():
            return _apply(line, values)
        case _:
            return {}


def _reset(line: tree.ResetAfter, values: Values) -> dict[str, Any]:
    after = values.amount(line.after, Use("`after`", DURATION, least=1, zero="write how long it stays open"))
    probe = values.count(line.probe, "`probe`", least=1, zero="leave it out")
    return {"reset": after.value, "probe": probe} if after else {}


def _when_open(line: tree.WhenOpen, values: Values) -> dict[str, Any]:
    action = values.word(line.action, ("skip", "hide", "stop", "finalize"), "action")
    text = values.text(line.text, f"`{action}`")
    if action is None:
        return {}
    if action == "hide" and line.text is not None:
        values.report.error(
            "P209",
            "`hide` takes no text",
            line.text.span,
            "never used",
            help="only `skip` answers calls with a text of its own",
        )
        return {}
    if text is not None and line.text is not None and not text.strip():
        values.report.error(
            "P311",
            f"the text of this `{action}` is empty",
            line.text.span,
            "nothing to tell the model",
            help="leave it out for the default text",
            fix=behind(line.text.span),
            safety=SAYS,
        )
        text = None
    return {"when_open": action, "text": text}


def _apply(line: tree.Apply, values: Values) -> dict[str, Any]:
    when = values.word(line.when, ("round_end", "now"), "time")
    if when == "now":
        values.report.warn(
            "P335",
            "with `apply now`, decisions depend on which tool ends first",
            line.span,
            "outcomes count as they arrive",
            help="leave it out: outcomes then count in the model's order, once a round is complete",
            fix=whole_line(line.span),
        )
    return {"apply": when} if when else {}
