"""The statements beside ``limits``: the final call, thresholds, prices, unknown tools.

Each function judges one statement of one file and gives its part of the policy's JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core.vocabulary import PREFER_ORDER, RESOURCES, TREE_RESOURCES
from policy_lang import tree
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.names import quoted
from policy_lang.quantities import COUNT, MAX, MONEY, text_of
from policy_lang.removals import behind, item, whole_line
from policy_lang.report import Report
from policy_lang.resolve.ladders import ladder
from policy_lang.resolve.limits import LimitLine, origin
from policy_lang.resolve.values import Amount, Use, Values
from policy_lang.source import Span

# ---- the final call


class FinalLine(NamedTuple):
    """One line of ``finalization``: the fields it sets, and where it stands."""

    kind: str
    fields: dict[str, Any]
    span: Span


def finalization(block: tree.Finalization, values: Values) -> list[FinalLine]:
    """The lines of a ``finalization`` block, each kind once; what is wrong with them is reported."""
    made: list[FinalLine] = []
    for line in block.lines:
        if isinstance(line, tree.Broken):
            continue
        kind = line.keyword
        first = next((m for m in made if m.kind == kind), None)
        if first is not None:
            values.report.error(
                "P210",
                f"`{kind}` is written twice",
                line.span,
                "again",
                Label(first.span, "first here"),
                help="keep one",
            )
            continue
        made.append(FinalLine(kind, _final_fields(line, values), line.span))
    return made


def _final_fields(line: tree.FinalLine, values: Values) -> dict[str, Any]:
    if isinstance(line, tree.Prefer):
        return {"prefer": _prefer(line, values)}
    if isinstance(line, tree.EmptyStop):
        return {"empty_retries": 0}
    if isinstance(line, tree.EmptyRetry):
        count = values.count(line.count, "`retry`", least=1, zero="write `empty stop`")
        return {"empty_retries": count} if count else {}
    if isinstance(line, tree.FinalTools):
        how = values.word(line.how, ("strip", "forbid"), "way to withhold tools")
        return {"tools": how} if how else {}
    return _mode(line, values)


def _prefer(line: tree.Prefer, values: Values) -> list[str]:
    names: list[str] = []
    for place, word in enumerate(line.names):
        name = values.word(word, PREFER_ORDER, "reason for a final call")
        if name in names:
            fix = item(line.names[place - 1].span, word.span) if len(line.names) > 2 else ()  # of one there is no order
            message = f"`{name}` is preferred twice"
            values.report.error("P210", message, word.span, "again", help="name each once", fix=fix, safety=SAYS)
        elif name:
            names.append(name)
    return names


def _mode(line: tree.Mode | tree.ModeUsing, values: Values) -> dict[str, Any]:
    mode = values.word(line.name, ("proactive", "reactive"), "mode")
    if isinstance(line, tree.ModeUsing):
        if mode == "proactive":
            values.report.error(
                "P209",
                "`proactive` mode has no text",
                line.resolver.span,
                "never used",
                help="only `reactive` answers tool calls that do not fit",
            )
            return {}
        using = None if isinstance(line.resolver, tree.Missing) else line.resolver.text
        return {"mode": "reactive", "text": None, "using": using} if mode else {}
    text = values.text(line.text, "`reactive`")
    if mode == "proactive" and line.text is not None:
        values.report.error(
            "P209",
            "`proactive` mode has no text",
            line.text.span,
            "never used",
            help="only `reactive` answers tool calls that do not fit",
        )
        text = None
    if mode == "reactive" and text is not None and line.text is not None and not text.strip():
        values.report.error(
            "P311",
            "the text of `reactive` is empty",
            line.text.span,
            "nothing to tell the model",
            help="leave it out for the default text",
            fix=behind(line.text.span),
            safety=SAYS,
        )
        text = None
    return {"mode": mode, "text": text, "using": None} if mode else {}


# ---- thresholds


class ThresholdLine(NamedTuple):
    data: dict[str, Any]
    node: tree.Threshold


def threshold(line: tree.Threshold, values: Values) -> ThresholdLine | None:
    """An ``at`` line with its values; ``None`` where it cannot be understood, which is reported."""
    percent = values.percent(line.percent, "a threshold")
    tree_wide = isinstance(line.resource, tree.Name) and line.resource.text in TREE_RESOURCES
    resource = None if tree_wide else values.word(line.resource, tuple(RESOURCES), "resource")
    action = values.word(line.action, ("warn", "tell", "use"), "action")
    client = _threshold_client(line, values) if action == "use" else None
    text = None if action == "use" else _threshold_text(line, action, values)
    if tree_wide:
        values.report.error(
            "P310",
            f"`{line.resource.span.text}` has no threshold",
            line.resource.span,
            "an agent too many is refused, and nobody warned before",
            help="remove it",
            fix=whole_line(line.span),
            safety=SAYS,
        )
    if resource == "attempt_wall":
        values.report.error(
            "P310",
            "`attempt_wall` has no threshold",
            line.resource.span,
            "measured anew for each attempt",
            help="`wall` is the time of the whole run",
        )
        return None
    if percent and not _percent_fits(percent, values.report):
        return None
    if percent is None or resource is None or action is None:
        return None
    if (action == "tell" and not text) or (action == "use" and not client):
        return None
    data = {
        "percent": percent.value,
        "resource": resource,
        "action": action,
        "text": text,
        "client": client,
        "origin": origin(line.span),
    }
    return ThresholdLine(data, line)


def _threshold_client(line: tree.Threshold, values: Values) -> str | None:
    if line.text is None:
        values.report.error("P101", "`use` needs a client", line.action.span, "expected the name of a client behind it")
        return None
    return values.client(line.text)


def _threshold_text(line: tree.Threshold, action: str | None, values: Values) -> str | None:
    text = values.text(line.text, "`tell`")
    if action == "tell" and line.text is None:
        values.report.error(
            "P101",
            "`tell` needs a text",
            line.action.span,
            "expected a text behind it",
            help='write it as in `tell "{left} left: wrap up."`',
        )
    if action == "warn" and line.text is not None:
        values.report.error(
            "P209",
            "`warn` takes no text",
            line.text.span,
            "would be sent to nobody",
            help="`tell` sends a text to the model",
        )
        return None
    if action == "tell" and text is not None and line.text is not None and not text.strip():
        values.report.error(
            "P311",
            "the text of this `tell` is empty",
            line.text.span,
            "nothing to tell the model",
            help="write the notice, or `warn`",
        )
        return None
    return text


def _percent_fits(percent: Amount, report: Report) -> bool:
    if percent.value is None or 1 <= percent.value <= 99:
        return True
    if percent.value == 0:
        report.error("P310", "a threshold of 0% is crossed before anything happens", percent.span, "expected 1% to 99%")
        return False
    label = "the limit itself acts here" if percent.value == 100 else "the limit acts before"
    fix = (Edit(percent.span, "99%"),) if percent.text[:1].isdigit() else ()
    message = f"a threshold of {percent.value}% is never of use"
    report.error("P310", message, percent.span, label, help="write 99% or less", fix=fix)
    return False


# ---- prices


def price(line: tree.Price, values: Values) -> dict[str, Any] | None:
    """Micro-dollars for a million tokens of one model."""
    model = values.plain(line.model, "the name of a model", "write the name the provider knows it by")
    per = values.amount(line.per, Use("`per`", COUNT, least=1, zero="write `per 1M`"))
    prices: dict[str, int | None] = {}
    for field, word in (("input", line.input), ("cached", line.cached), ("output", line.output)):
        found = values.amount(word, Use(f"`{field}`", MONEY))
        prices[field] = None
        if found is not None and found.value is not None and per is not None and per.value is not None:
            prices[field] = _per_million(found, per, values.report)
    if model is None or prices["input"] is None or prices["output"] is None:
        return None
    return {"model": model, **prices, "origin": origin(line.span)}


def _per_million(found: Amount, per: Amount, report: Report) -> int | None:
    value, rest = divmod((found.value or 0) * 1_000_000, per.value or 1)
    if rest:
        report.error(
            "P206",
            f"{found.text} per {per.text} is no whole number of millionths of a dollar per million tokens",
            found.span,
            "cannot be kept exactly",
            help="write prices `per 1M`",
        )
        return None
    if value > MAX:
        report.error(
            "P207", f"{found.text} per {per.text} is too large", found.span, f"more than {text_of(MAX, MONEY)} per 1M"
        )
        return None
    return value


# ---- unknown tools


def on_unknown_tool(line: tree.On, values: Values) -> LimitLine | None:
    """``on unknown_tool reply N then …`` is a limit of N on ``unknown_tools``; without ``reply`` a limit of none."""
    resource = RESOURCES["unknown_tools"]
    if line.reasons is not None:
        span = line.reasons[0].span
        values.report.error("P209", "`on unknown_tool` takes no reasons", span, "expected a step such as `reply 3`")
    first, *rest = line.steps
    later = tuple(step for step in rest if not _no_answer(step, True, values.report))
    steps = later
    value = Amount(0, "0", first.span)
    if not isinstance(first, tree.Reply):
        steps = later if _no_answer(first, False, values.report) else (first, *later)
    else:
        use = Use("`reply`", COUNT, unlimited=True)
        found = values.amount(first.count, use)
        value = found or value
        if found is None:
            ladder(steps, resource, line.what.span, values)
            return None
    data = {
        "resource": resource.name,
        "scope": resource.scope,
        "max": value.value,
        "reserve": 0,
        "atomic": False,
        "counting_approvals": False,
        "locked": False,
        "then": ladder(steps, resource, line.what.span, values),
        "origin": origin(line.span),
    }
    return LimitLine(data, line, line.what.span, value)


def _no_answer(step: tree.Step, later: bool, report: Report) -> bool:
    """Is this a step that does nothing about the call of an unknown tool? Then that is told."""
    if not isinstance(step, tree.Retry | tree.Fallback | tree.Reply):
        return False
    message = f"`{step.keyword}` is no answer to a call of an unknown tool"
    help = "remove it"
    if isinstance(step, tree.Reply):
        message = "`reply` comes once, as the first step"
        help = "write one number: how often the model is told that there is no such tool"
    elif not later:
        number = getattr(getattr(step, "count", None), "text", "N")
        help = f"write `reply {number}`: that often the model is told that there is no such tool, and may go on"
    ends = ["stop", "finalize", *(["extend", "ask", "consult"] if later else [])]
    label = f"expected {quoted(ends)}" if later else f"expected `reply N`, {quoted(ends)}"
    report.error("P208", message, step.span, label, help=help)
    return True
