"""The ladder of a limit: which steps it may have, and what each says.

One ladder is judged by itself here. How its numbers go with the limit's is the business of ``limits`` and ``rules``.
"""

from __future__ import annotations

from typing import Any

from engine.core.vocabulary import Resource
from policy_lang import tree
from policy_lang.diagnostics import Label
from policy_lang.names import quoted
from policy_lang.report import Report
from policy_lang.resolve.reach import Reach
from policy_lang.resolve.steps import consult_step, finalize_step, nothing_to_choose, unreachable
from policy_lang.resolve.values import Use, Values
from policy_lang.source import Span

_OUT_OF_PLACE = {
    tree.Retry: ("retry", "a failed model call is retried by `on llm_failure`"),
    tree.Fallback: ("fallback", "another client is tried by `on llm_failure`"),
    tree.Reply: ("reply", "calls of unknown tools are answered by `on unknown_tool`"),
}


def ladder(steps: tuple[tree.Step, ...], resource: Resource, place: Span, values: Values) -> list[dict[str, Any]]:
    """The steps of a limit's ladder in the shape of the policy's JSON; wrong ones are left out."""
    made: list[dict[str, Any]] = []
    reach = Reach(final_ends=True)
    first: dict[type, tree.Step] = {}
    if steps and resource.name == "attempt_wall":
        values.report.error(
            "P208",
            "`attempt_wall` has no ladder",
            steps[0].span,
            "an attempt that takes longer has failed with `timeout`",
            help="`on llm_failure timeout` says what follows",
        )
        return made
    for number, step in enumerate(steps):
        if barrier := reach.barrier(step):
            ended, why = barrier
            unreachable(step, ended, values.report, why)
            steps = steps[:number]
            break
        before = first.setdefault(type(step), step)
        made += _step(step, None if before is step else before, resource, place, values)
    nothing_to_choose(steps, values.report)
    return made


def _step(
    step: tree.Step, before: tree.Step | None, resource: Resource, place: Span, values: Values
) -> list[dict[str, Any]]:
    """One step; ``before`` is an earlier one of its kind."""
    if isinstance(step, tree.Stop):
        return [{"do": "stop"}]
    if isinstance(step, tree.Finalize | tree.FinalizeUsing):
        return [finalize_step(step, values)]
    if isinstance(step, tree.Extend):
        return _extend(step, before, resource, place, values)
    if isinstance(step, tree.Ask):
        return _ask(step, before, resource, place, values)
    if isinstance(step, tree.Consult):
        return _consult(step, resource, values.report)
    word, help = _OUT_OF_PLACE[type(step)]
    fitting = ["stop", "finalize"] + ["extend"] * resource.extendable + ["ask"] * resource.askable
    fitting += ["consult"] * (resource.name != "wall")
    values.report.error("P208", f"`{word}` is no step of a limit", step.span, f"expected {quoted(fitting)}", help=help)
    return []


def _consult(step: tree.Consult, resource: Resource, report: Report) -> list[dict[str, Any]]:
    if resource.name == "wall":
        report.error(
            "P208",
            "nobody is consulted about `wall`",
            step.span,
            "time does not wait for an answer",
            help="write the step that is to follow: `extend`, `finalize` or `stop`",
        )
        return []
    return consult_step(step)


def _extend(
    step: tree.Extend, before: tree.Step | None, resource: Resource, place: Span, values: Values
) -> list[dict[str, Any]]:
    by = values.amount(step.by, Use("`extend`", resource.unit, least=1, zero="leave the step out"))
    if not resource.extendable:
        values.report.error(
            "P329",
            f"`{resource.name}` cannot be extended",
            step.span,
            "nothing extends it",
            Label(place, "the strict outer budget of the run"),
            help="write a larger limit instead",
        )
        return []
    if before is not None:
        values.report.error(
            "P210",
            "a limit is extended once only",
            step.span,
            "again",
            Label(before.span, "first here"),
            help="write one larger extension",
        )
        return []
    return [{"do": "extend", "by": by.value}] if by else []


def _ask(
    step: tree.Ask, before: tree.Step | None, resource: Resource, place: Span, values: Values
) -> list[dict[str, Any]]:
    use = Use("`up to`", resource.unit, least=1, zero="leave the step out: nothing could be granted")
    up_to = values.amount(step.up_to, use)
    times = values.count(step.times, "`times`", least=1, zero="leave the step out: nobody would be asked")
    if not resource.askable:
        _nobody_asked(step, resource, place, values.report)
        return []
    if before is not None:
        values.report.error(
            "P210",
            "a ladder asks in one step",
            step.span,
            "again",
            Label(before.span, "first here"),
            help="`times` says how often, as in `ask times 2`",
        )
        return []
    wrong = (step.up_to is not None and up_to is None) or (step.times is not None and times is None)
    return [] if wrong else [{"do": "ask", "up_to": up_to.value if up_to else None, "times": times or 1}]


def _nobody_asked(step: tree.Ask, resource: Resource, place: Span, report: Report) -> None:
    if resource.name == "wall":
        report.error(
            "P208",
            "nobody is asked to extend `wall`",
            step.span,
            "time passes while nobody answers",
            help="write `extend`: it is a later deadline from the start",
        )
        return
    report.error(
        "P329",
        f"nobody can grant more `{resource.name}`",
        step.span,
        "nothing extends it",
        Label(place, "the strict outer budget of the run"),
        help="write a larger limit instead, or ask about `tool_iterations`",
    )
