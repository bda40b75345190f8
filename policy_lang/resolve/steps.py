"""Steps and waits that more than one ladder knows: `finalize`, `consult`, `retry`, and what can never be reached.

Each function judges one of them and gives its part of the policy's JSON. Which ladder takes which step is the
business of the ladders.
"""

from __future__ import annotations

from typing import Any

from policy_lang import removals, tree
from policy_lang.diagnostics import SAYS, UNSAFE, Edit, Label
from policy_lang.quantities import DURATION
from policy_lang.report import Report
from policy_lang.resolve.values import Use, Values
from policy_lang.source import Span

RETRY_MS = (1_000, 30_000)
"""First and longest wait (ms) where a `retry` states none; the model of the policy has the same numbers."""


def finalize_step(step: tree.Finalize | tree.FinalizeUsing, values: Values) -> dict[str, Any]:
    """A final call: with a text, with what the host's function returns, or with the default instruction."""
    if isinstance(step, tree.FinalizeUsing):
        name = None if isinstance(step.resolver, tree.Missing) else step.resolver.text
        return {"do": "finalize", "text": None, "using": name}
    return {"do": "finalize", "text": finalize_text(step, values), "using": None}


def finalize_text(step: tree.Finalize, values: Values) -> str | None:
    """The instruction of a ``finalize``, ``None`` for the default one."""
    text = values.text(step.text, "`finalize`")
    if text is not None and not text.strip() and step.text is not None:
        gap = Span(step.span.source, step.span.start + len("finalize"), step.span.end)
        values.report.error(
            "P311",
            "the instruction of this `finalize` is empty",
            step.text.span,
            "nothing to tell the model",
            help="write `finalize` alone for the default instruction",
            fix=(Edit(gap, ""),),
            safety=SAYS,
        )
        return None
    return text


def consult_step(step: tree.Consult) -> list[dict[str, Any]]:
    """The host chooses; nothing to judge but the name, which the parser has seen."""
    return [] if isinstance(step.name, tree.Missing) else [{"do": "consult", "name": step.name.text}]


def nothing_to_choose(steps: tuple[tree.Step, ...], report: Report) -> None:
    """A `consult` with no step behind it but `stop`."""
    last = next((step for step in reversed(steps) if not isinstance(step, tree.Stop)), None)
    if isinstance(last, tree.Consult):
        report.warn(
            "P313",
            "no step is left that this `consult` could choose",
            last.span,
            "asked for nothing",
            help="write the steps to choose from behind it, or remove it",
        )


def retry_step(count: tree.Value, every: tree.Every | None, values: Values) -> dict[str, Any] | None:
    """``retry N [every A..B [jitter]]``; without `every` the usual waits, with jitter."""
    times = values.count(count, "`retry`", least=1, zero="leave it out")
    waits = (*RETRY_MS, True) if every is None else _waits(every, values)
    if times is None or waits is None:
        return None
    least, most, jitter = waits
    return {"do": "retry", "times": times, "least": least, "most": most, "jitter": jitter}


def _waits(every: tree.Every, values: Values) -> tuple[int, int, bool] | None:
    low = values.amount(every.low, Use("the first wait", DURATION))
    high = values.amount(every.high, Use("the longest wait", DURATION))
    if low is None or high is None or low.value is None or high.value is None:
        return None
    if low.value > high.value:
        values.report.error(
            "P207",
            "the first wait is longer than the longest",
            low.span,
            "",
            Label(high.span, "the longest"),
            help=f"write `every {high.text}..{low.text}`",
            fix=(Edit(low.span, high.text), Edit(high.span, low.text)),
            safety=SAYS,
        )
        return None
    return low.value, high.value, every.jitter is not None


def unreachable(step: tree.Step, ended: tree.Step, report: Report, why: str = "") -> None:
    """``step`` stands behind ``ended``, and so it is never taken."""
    word = ended.keyword
    same = isinstance(step, tree.Stop) and isinstance(ended, tree.Finalize)
    report.error(
        "P313",
        "this step is never reached",
        step.span,
        "never taken",
        Label(ended.span, why or f"`{word}` ends the ladder"),
        help="remove it; behind the last step stands `stop` anyway"
        if same
        else "remove it"
        if why
        else f"put it before `{word}`, or remove it",
        fix=removals.step(step.span),
        safety=SAYS if same or why else UNSAFE,
    )
