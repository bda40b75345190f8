"""What the parts of a policy do to one another: limits that contradict, names nobody uses, dead text.

Looks at merged limits and at one file's names. Reports only; the policy is not changed.
"""

from __future__ import annotations

import re
from typing import Any

from engine.core.vocabulary import PREFER_ORDER, RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import Edit, Label
from policy_lang.names import listed
from policy_lang.quantities import text_of
from policy_lang.report import Report
from policy_lang.resolve.files import Unit
from policy_lang.resolve.limits import LimitLine
from policy_lang.resolve.merge import Merged
from policy_lang.resolve.names import Definition, Names
from policy_lang.resolve.statements import ThresholdLine
from policy_lang.source import Span


def check(merged: Merged, broken: bool, report: Report) -> None:
    """All findings about the merged policy. ``broken``: something could not be read, so absence proves nothing."""
    check_lines(merged.limits, report)
    limits = {line.title: line for line in merged.limits}
    calls, rounds = limits.get("llm_calls"), limits.get("tool_iterations")
    if calls and rounds:
        check_budgets(calls, rounds, merged.final, report)
    if not broken:
        unpriced_cost(merged.limits, merged.prices, report)
        idle_thresholds(merged.thresholds, merged.limits, "`limits`", report)


def check_lines(limits: list[LimitLine], report: Report) -> None:
    """All findings about limits that are each by themselves, a policy's or an agent's."""
    for line in limits:
        _capped_extension(line, report)
        _reserve(line, report)
        if line.title == "llm_calls":
            _single_call(line, report)


# ---- single limits


def _steps(line: LimitLine, *kinds: type) -> list[tree.Step]:
    return [step for step in line.node.steps if isinstance(step, kinds)]


def _capped_extension(line: LimitLine, report: Report) -> None:
    most = line.data["max"]
    for data in line.data["then"]:
        if data["do"] == "extend" and most is not None and data["by"] > most:
            step = _steps(line, tree.Extend)[0]
            by = step.by.span  # type: ignore[union-attr]
            shown = text_of(most, RESOURCES[line.data["resource"]].unit)
            report.warn(
                "P305",
                f"an extension is at most the limit itself: {shown}",
                by,
                "capped",
                Label(line.value.span, "the limit"),
                help=f"write `extend {shown} once`",
                fix=(Edit(by, shown),),
            )


def _reserve(line: LimitLine, report: Report) -> None:
    """A reserve for a final call that is never made, or that would be the only call."""
    reserve, most = line.reserve, line.value
    if reserve is None or most.value is None:
        return
    if not line.finalizes:
        report.warn(
            "P341",
            f"this reserve of `{line.title}` keeps nothing back",
            reserve.span,
            "for a final call that is never made",
            help="write `then finalize` behind it, or remove the reserve",
        )
    elif reserve.value == most.value:
        report.warn(
            "P343",
            f"the reserve is the whole limit of `{line.title}`",
            reserve.span,
            "nothing is left for any other call",
            Label(most.span, "the limit"),
            help="the first call would be the final one, without tools: write a smaller reserve",
        )


def _single_call(calls: LimitLine, report: Report) -> None:
    if calls.data["max"] == 1 and calls.finalizes:
        step = _steps(calls, tree.Finalize, tree.FinalizeUsing)[0]
        report.warn(
            "P328",
            "with one model call that is final, the agent can never use a tool",
            calls.value.span,
            "the only call",
            Label(step.span, "made without tools"),
            help="allow at least 2 calls, or deny the tools",
        )


# ---- calls and rounds


def check_budgets(calls: LimitLine, rounds: LimitLine, final: dict[str, Any], report: Report) -> None:
    """Model calls against tool rounds: each round needs a call, and the final answer one more."""
    most, total = calls.data["max"], rounds.total
    if most is None or total is None or not rounds.finalizes:
        return
    reactive = final["mode"] == "reactive"
    step = _steps(rounds, tree.Finalize, tree.FinalizeUsing)[0]
    why = (Label(rounds.value.span, f"up to {total} rounds{_included(rounds)}"),)
    needed = needed_calls(total, final)
    if calls.finalizes:
        if most - 1 < total:
            _fewer_rounds(calls, why, most, total, report)
        if most <= needed and _prefers_calls(final):
            _dead_text(calls, rounds, step, needed + 1, report)
    elif most < needed:
        _never_final(calls, step, why, needed, reactive, report)


def needed_calls(rounds: int, final: dict[str, Any]) -> int:
    """Model calls for so many rounds and a final call after them."""
    return rounds + (2 if final["mode"] == "reactive" else 1)


def _included(rounds: LimitLine) -> str:
    """What the number of rounds contains beside the limit itself."""
    words = {"extend": "extension", "ask": "what people may grant"}
    more = [words[step["do"]] for step in rounds.data["then"] if step["do"] in words]
    return f", {listed(more, 'and')} included" if more else ""


def _fewer_rounds(calls: LimitLine, why: tuple[Label, ...], most: int, total: int, report: Report) -> None:
    can = max(0, most - 1)
    rounds = "no round" if can == 0 else "1 round" if can == 1 else f"{can} rounds"
    report.warn(
        "P302",
        f"the last model call is final, so {rounds} can run instead of {total}",
        calls.value.span,
        f"{most} calls, the last without tools",
        *why,
        help=f"write `llm_calls {total + 1}` or more for all rounds",
        fix=_number(calls, total + 1),
    )


def _never_final(
    calls: LimitLine, step: tree.Step, why: tuple[Label, ...], needed: int, reactive: bool, report: Report
) -> None:
    reason = (
        "each round takes a call, the refused round and the answer one more each"
        if reactive
        else "each round takes a call, the final answer one more"
    )
    report.warn(
        "P301",
        "this final call can never be made: the model calls run out first",
        step.span,
        "never reached",
        Label(calls.value.span, f"{needed} calls would be needed"),
        *why,
        help=f"write `llm_calls {needed}` or more; {reason}",
        fix=_number(calls, needed),
    )


def _dead_text(calls: LimitLine, rounds: LimitLine, step: tree.Step, needed: int, report: Report) -> None:
    text = getattr(step, "text", None) or getattr(step, "resolver", None)
    if text is None:
        return
    report.warn(
        "P332",
        "this instruction is never sent: the last model call carries that of `llm_calls`",
        text.span,
        "never sent",
        Label(calls.resource_span, "preferred, and reached no later"),
        help=f"write `llm_calls {needed}` or more, or `prefer tool_iterations over llm_calls`",
    )


def _prefers_calls(final: dict[str, Any]) -> bool:
    order = [*final["prefer"], *(name for name in PREFER_ORDER if name not in final["prefer"])]
    return order.index("llm_calls") < order.index("tool_iterations")


def _number(line: LimitLine, value: int) -> tuple[Edit, ...]:
    """The edit that writes another maximum, if the line has it as a number of its own."""
    return (Edit(line.value.span, str(value)),) if line.value.span.text[:1].isdigit() else ()


# ---- what is missing


def unpriced_cost(limits: list[LimitLine], prices: list[dict[str, Any]], report: Report) -> None:
    """A limit of `cost` where nothing says what a token costs."""
    line = next((m for m in limits if m.data["resource"] == "cost" and m.data["max"] is not None), None)
    if line is not None and not prices:
        report.error(
            "P325",
            "a `cost` limit needs prices",
            line.resource_span,
            "nothing says what a token costs",
            help='add a block `prices {` with lines such as `"gpt-4.1" input $2 cached $0.50 output $8 per 1M`',
        )


def idle_thresholds(thresholds: list[ThresholdLine], limits: list[LimitLine], where: str, report: Report) -> None:
    """Percentages of what has no limit. ``where`` it would be limited."""
    limited = {line.data["resource"] for line in limits if line.data["max"] is not None}
    for line in thresholds:
        name = line.data["resource"]
        if name in limited:
            continue
        unlimited = next((m for m in limits if m.data["resource"] == name), None)
        why = (Label(unlimited.value.span, "unlimited here"),) if unlimited else ()
        help = f"limit it, as in `{name} …` in {where}, or remove the threshold"
        report.error(
            "P310",
            f"`{name}` has no limit, so no percentage of it is ever reached",
            line.node.resource.span,
            "not limited",
            *why,
            help=help,
        )


def unused_names(unit: Unit, names: Names, report: Report) -> None:
    """`param` and `let` of one file that nothing uses."""
    _mark_tests(unit, names)
    unread = " ".join(span.text for span in _broken(unit))
    for definition in names.own.values():
        if (
            not definition.used
            and definition.meaning is not None
            and not re.search(rf"\b{re.escape(definition.name)}\b", unread)
        ):
            _unused(definition, report)


def _unused(definition: Definition, report: Report) -> None:
    kind, span = definition.kind, definition.statement.span
    source = span.source
    end = source.line_end(span.end)
    rest = source.text[span.end : end]
    alone = not rest.strip() and source.line_start(span.start) == span.start
    fix = (Edit(Span(source, span.start, min(end + 1, len(source.text))), ""),) if alone else ()
    report.warn(
        "P319",
        f"`{definition.name}` is never used",
        definition.span,
        "",
        help=f"use it, or remove this `{kind}`",
        fix=fix,
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
