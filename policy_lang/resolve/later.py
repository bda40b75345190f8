"""Statements that this version reads and cannot carry out: breakers, failures of the model, trees of agents.

Their words and quantities are judged like everyone's, so that a file is right on the day they
gain a meaning; then each gets one finding that says it has none yet.
"""

from __future__ import annotations

from engine.core.vocabulary import REASONS, RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.quantities import COUNT, DURATION, PERCENT
from policy_lang.report import Report
from policy_lang.resolve.limits import finalize_text, limit_line
from policy_lang.resolve.statements import check_retry, on_unknown_tool, threshold, tool
from policy_lang.resolve.values import Use, Values

_DETECTORS = {
    "same_args": (COUNT, False),
    "alternating": (COUNT, False),
    "failures": (COUNT, False),
    "same_result": (COUNT, False),
    "failure_rate": (PERCENT, True),
    "slow": (DURATION, True),
}
"""Dimension of the first quantity, and whether `of N` follows."""

MAX_WINDOW = 64

_FAILURE_STEPS = (tree.Retry, tree.Fallback, tree.Finalize, tree.FinalizeUsing, tree.Consult, tree.Stop)


# ---- failures of the model


def check_failure(line: tree.On, values: Values) -> None:
    """``on llm_failure REASONS STEPS``."""
    if line.reasons is None:
        values.report.error(
            "P101",
            "`on llm_failure` needs a reason",
            line.what.span,
            "expected a reason behind it",
            help="`*` is every reason",
        )
    for reason in line.reasons or ():
        if not isinstance(reason, tree.Star):
            values.word(reason, tuple(REASONS), "reason")
    for step in line.steps:
        _failure_step(step, values)
    values.report.unsupported(line.span.head(2), "`on llm_failure`")


def _failure_step(step: tree.Step, values: Values) -> None:
    if not isinstance(step, _FAILURE_STEPS):
        word = step.keyword
        values.report.error(
            "P208",
            f"`{word}` is no step for a failed call",
            step.span,
            "expected `retry`, `fallback`, `finalize` or `stop`",
        )
    elif isinstance(step, tree.Retry):
        check_retry(step.count, step.every, values)
    elif isinstance(step, tree.Finalize):
        finalize_text(step, values)
    elif isinstance(step, tree.Fallback) and not (
        isinstance(step.lasting, tree.Name) and step.lasting.text in ("run", "call")
    ):
        values.amount(step.lasting, Use("`for`", DURATION, least=1, zero="write `for call`"))


# ---- breakers


def check_breaker(block: tree.Breaker, values: Values) -> None:
    values.plain(block.glob, "the pattern of a breaker", 'write `"*"` for every tool')
    for line in block.lines:
        if isinstance(line, tree.Trip):
            _check_trip(line, values)
        elif isinstance(line, tree.ResetAfter):
            values.amount(line.after, Use("`after`", DURATION, least=1, zero="write how long it stays open"))
            values.count(line.probe, "`probe`", least=1, zero="leave it out")
        elif isinstance(line, tree.WhenOpen):
            action = values.word(line.action, ("skip", "hide", "stop", "finalize"), "action")
            values.text(line.text, f"`{action}`")
        elif isinstance(line, tree.WhenOpenEnding) and isinstance(line.step, tree.Finalize):
            finalize_text(line.step, values)
        elif isinstance(line, tree.Count):
            values.word(line.what, ("denied",), "outcome")
            values.word(line.verdict, ("failure", "success", "nothing"), "verdict")
        elif isinstance(line, tree.Keyed):
            values.word(line.by, ("args",), "key")
        elif isinstance(line, tree.Apply):
            values.word(line.when, ("round_end", "now"), "time")
    values.report.unsupported(block.span.head(), "`breaker`")


def _check_trip(line: tree.Trip, values: Values) -> None:
    detector = values.word(line.detector, tuple(_DETECTORS), "detector")
    if detector is None:
        return
    dimension, windowed = _DETECTORS[detector]
    first = values.amount(line.value, Use(f"`{detector}`", dimension, line.detector.span, least=1))
    window = values.amount(line.of, Use("`of`", COUNT, least=1))
    if windowed and line.of is None:
        values.report.error(
            "P101",
            f"`{detector}` needs a window",
            line.span,
            "expected `of` and a count behind it",
            help=f"write it as in `trip {detector} {first.text if first else '50%'} of 10`",
        )
    if not windowed and line.of is not None:
        values.report.error(
            "P209", f"`{detector}` takes no window", line.of.span, "has no meaning here", help="remove it"
        )
    size = window if windowed else first
    if size and size.value is not None and size.value > MAX_WINDOW:
        values.report.error("P207", f"a breaker looks back {MAX_WINDOW} calls at most", size.span, "larger than that")
    elif detector == "alternating" and first and first.value is not None and (first.value < 4 or first.value % 2):
        better = max(4, first.value + first.value % 2)
        values.report.error(
            "P303",
            "an alternating window is even and at least 4",
            first.span,
            "can never be A-B-A-B",
            help=f"write `{better}`",
        )


# ---- trees


def check_agents(block: tree.Agents, values: Values) -> None:
    """``agents``: limits on the tree of sub-agents, `share` and `carve`."""
    for line in block.lines:
        if isinstance(line, tree.Setting):
            name = values.word(line.resource, TREE_RESOURCES, "limit of `agents`")
            values.amount(line.value, Use(f"`{name or line.resource.span.text}`", COUNT, unlimited=True))
        elif isinstance(line, tree.Share | tree.Carve):
            for word in line.names:
                values.word(word, tuple(RESOURCES), "resource")
    values.report.unsupported(block.span.head(), "`agents`")


def check_agent(block: tree.Agent, values: Values) -> None:
    """``agent "NAME"``. What is not supported inside it is told once, for the whole."""
    values.plain(block.name, "the name of an agent", "write the name it is spawned by")
    inner = Values(values.names, Report())
    for line in block.lines:
        if isinstance(line, tree.Setting):
            limit_line(line, inner)
        elif isinstance(line, tree.Threshold):
            threshold(line, inner)
        elif isinstance(line, tree.Tool):
            tool(line, inner)
        elif isinstance(line, tree.On):
            what = inner.word(line.what, ("unknown_tool", "llm_failure"), "event")
            if what == "llm_failure":
                check_failure(line, inner)
            elif what == "unknown_tool":
                on_unknown_tool(line, inner)
    values.report.findings += [finding for finding in inner.report.findings if finding.code != "P340"]
    values.report.unsupported(block.span.head(), "`agent`")
