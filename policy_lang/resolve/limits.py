"""One line of ``limits``: its resource, quantity, options and ladder of steps.

A line is judged by itself here. What a base's limit does to it is ``merge``'s business, what
several limits do to one another that of ``policy_lang.rules``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core.vocabulary import RESOURCES, SCOPES, TREE_RESOURCES, Resource, limit_name
from policy_lang import tree
from policy_lang.diagnostics import SAYS, Edit, Label
from policy_lang.names import nearest, quoted
from policy_lang.quantities import COUNT, DURATION, MONEY, text_of
from policy_lang.removals import behind
from policy_lang.report import Report
from policy_lang.resolve.ladders import ladder
from policy_lang.resolve.values import Amount, Use, Values
from policy_lang.source import Span


class LimitLine(NamedTuple):
    """A limit as one file states it, and where its parts stand. ``data`` has the shape of the policy's JSON."""

    data: dict[str, Any]
    node: tree.Setting | tree.On
    resource_span: Span
    value: Amount
    override: tree.Name | None = None
    reserve: Amount | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        return (self.data["resource"], self.data["scope"])

    @property
    def title(self) -> str:
        """How the limit is called: ``tokens`` or ``tokens per thread``."""
        return limit_name(*self.key)

    @property
    def finalizes(self) -> bool:
        return any(step["do"] == "finalize" for step in self.data["then"])

    @property
    def total(self) -> int | None:
        """The most that can ever be used: the maximum, its extension, and what people may grant."""
        most: int | None = self.data["max"]
        if most is None:
            return None
        total = most
        for step in self.data["then"]:
            if step["do"] == "extend":
                total += min(step["by"], most)
            elif step["do"] == "ask":
                total += (step["up_to"] or most) * step["times"]
        return total


def origin(span: Span) -> dict[str, Any]:
    """Where a rule was written, in the shape of the policy's JSON."""
    return {"file": span.source.name, "line": span.line}


def limit_line(line: tree.Setting, values: Values, known: dict[str, Resource] | None = None) -> LimitLine | None:
    """Judge one line of ``limits``. ``None`` if it is too wrong to mean anything."""
    resource = _resource(line.resource, values.report)
    if resource is None or isinstance(line.resource, tree.Missing):
        _check_names(line, values)
        return None
    use = Use(f"`{resource.name}`", resource.unit, line.resource.span, unlimited=True)
    value = values.amount(line.value, use)
    options = _Options(line, resource, values)
    steps = ladder(line.steps, resource, line.resource.span, values)
    if value is None:
        return None
    data = {
        "resource": resource.name,
        "scope": options.scope or resource.scope or None,
        "max": value.value,
        "reserve": options.reserve.value or 0 if options.reserve else 0,
        "atomic": options.atomic,
        "counting_approvals": options.counting,
        "locked": line.modifier is not None and line.modifier.text == "locked",
        "then": steps,
        "origin": origin(line.span),
    }
    override = line.modifier if line.modifier and line.modifier.text == "override" else None
    made = LimitLine(data, line, line.resource.span, value, override, options.reserve)
    _check_amounts(made, options, resource, values.report)
    return made


def _resource(word: tree.Word, report: Report) -> Resource | None:
    if isinstance(word, tree.Missing):
        return None
    found = RESOURCES.get(word.text)
    if found:
        return found
    if word.text in (*TREE_RESOURCES, "share", "carve"):
        said = "is limited in" if word.text in TREE_RESOURCES else "is a line of"
        message = f"`{word.text}` {said} `agents`"
        report.error("P106", message, word.span, "not here", help="write it in an `agents` block")
        return None
    near = nearest(word.text, RESOURCES)
    if near:
        report.error(
            "P201",
            f"unknown resource `{word.text}`",
            word.span,
            "cannot be limited",
            help=f"did you mean `{near}`?",
            fix=(Edit(word.span, near),),
        )
    else:
        report.error(
            "P201",
            f"unknown resource `{word.text}`",
            word.span,
            "cannot be limited",
            help=f"known: {quoted(RESOURCES, 'and')}",
        )
    return None


def _check_names(line: tree.Setting, values: Values) -> None:
    """Names in a line whose resource is unknown: used all the same."""
    if isinstance(line.value, tree.Name):
        values.names.find(line.value.text)
    for step in line.steps:
        if isinstance(step, tree.Finalize):
            values.text(step.text, "`finalize`")


# ---- options


class _Options:
    """The options of a line, each at most once."""

    def __init__(self, line: tree.Setting, resource: Resource, values: Values) -> None:
        self.scope: str | None = None
        self.reserve: Amount | None = None
        self.atomic = False
        self.counting = False
        self.values, self.report = values, values.report
        self.resource = resource
        seen: dict[str, tree.Option] = {}
        for option in line.options:
            kind = (
                "atomic or partial" if isinstance(option, tree.Atomic | tree.Partial) else type(option).__name__.lower()
            )
            if kind in seen:
                self.report.error(
                    "P210",
                    f"`{kind}` is written twice",
                    option.span,
                    "again",
                    Label(seen[kind].span, "first here"),
                    help="keep one",
                )
                continue
            seen[kind] = option
            self._take(option)

    def _take(self, option: tree.Option) -> None:
        if isinstance(option, tree.Per):
            self._take_scope(option)
        elif isinstance(option, tree.Reserve):
            self._take_reserve(option)
        elif isinstance(option, tree.Counting):
            self._take_counting(option)
        elif self.resource.name != "tool_calls":
            word = option.span.text
            self.report.error(
                "P209",
                f"`{word}` is for `tool_calls` only",
                option.span,
                "has no meaning here",
                help="remove it",
                fix=behind(option.span),
                safety=SAYS,
            )
        else:
            self.atomic = isinstance(option, tree.Atomic)

    def _take_counting(self, option: tree.Counting) -> None:
        word = self.values.word(option.what, ("approvals",), "word after `counting`")
        if self.resource.name == "wall":
            self.counting = word is not None
        else:
            self.report.error(
                "P209",
                "`counting approvals` is for `wall` only",
                option.span,
                f"no `{self.resource.name}` is used while people are awaited",
                help="remove it",
                fix=behind(option.span),
                safety=SAYS,
            )

    def _take_scope(self, option: tree.Per) -> None:
        possible = self.resource.scopes
        if not possible:
            self.report.error(
                "P209",
                f"`{self.resource.name}` has no scope",
                option.span,
                "it is measured for each attempt",
                help="remove it",
                fix=behind(option.span),
                safety=SAYS,
            )
            return
        scope = self.values.word(option.scope, SCOPES, "scope")
        if scope is not None and scope not in possible:
            self.report.error(
                "P209",
                f"`{self.resource.name}` cannot be limited per {scope}",
                option.span,
                f"expected {quoted([f'per {p}' for p in possible])}",
            )
        elif scope is not None:
            self.scope = scope

    def _take_reserve(self, option: tree.Reserve) -> None:
        if not self.resource.reservable:
            self.report.error(
                "P209",
                f"`{self.resource.name}` takes no reserve",
                option.span,
                "has no meaning here",
                help="a counted resource needs none: the last one is the final call's"
                if self.resource.name == "llm_calls"
                else "remove it",
                fix=behind(option.span),
                safety=SAYS,
            )
            return
        use = Use("`reserve`", self.resource.unit, None, least=1, zero="leave the reserve out")
        self.reserve = self.values.amount(option.value, use)


def _check_amounts(line: LimitLine, options: _Options, resource: Resource, report: Report) -> None:
    """How quantity, reserve and ladder of one line go together."""
    most, reserve = line.value, options.reserve
    if reserve and most.value is not None and reserve.value is not None and reserve.value > most.value:
        report.error(
            "P207",
            f"the reserve is larger than the limit of `{resource.name}`",
            reserve.span,
            "more than there is",
            Label(most.span, "the limit"),
        )
    if most.value == 0 and resource.name == "attempt_wall":
        report.error(
            "P207",
            "`attempt_wall` cannot be zero",
            most.span,
            "every attempt would fail at once",
            help="write the longest time one attempt may take",
        )
    _check_asking(line, report)
    needs = resource.reservable and most.value is not None and not (options.reserve or _tried_reserve(line))
    if needs and line.finalizes and isinstance(line.node, tree.Setting):
        step = next(s for s in line.node.steps if isinstance(s, tree.Finalize | tree.FinalizeUsing))
        example = _reserve_for(most.value or 0, resource.unit)
        report.error(
            "P330",
            f"`finalize` on `{resource.name}` needs a reserve",
            step.span,
            "nothing would be left for the final call",
            Label(most.span, "all of it may be spent before"),
            help=f"keep some back: `{resource.name} {most.text} reserve {example} then finalize`",
            fix=_added(line.node, f"reserve {example}"),
        )


def _added(line: tree.Setting, option: str) -> tuple[Edit, ...]:
    """The edit that writes one more option."""
    end = max([line.value.span.end, *(other.span.end for other in line.options)])
    return (Edit(Span(line.span.source, end, end), f" {option}"),)


def stated(line: LimitLine) -> bool:
    """Does all that the limit grants stand in it as numbers? What a `param` stands for, a host may change."""
    node = line.node
    if not isinstance(node, tree.Setting):
        return False
    values: list[object] = [node.value]
    for part in (*node.options, *node.steps):
        values += [getattr(part, field, None) for field in ("value", "by", "up_to", "times")]
    return not any(isinstance(value, tree.Name) for value in values)


def _check_asking(line: LimitLine, report: Report) -> None:
    """As much as the limit itself is what a person may grant where nothing else is said: of none, nothing."""
    ask = next((s for s in line.node.steps if isinstance(s, tree.Ask) and s.up_to is None), None)
    if ask and line.data["max"] == 0:
        report.error(
            "P207",
            f"a person could grant no `{line.data['resource']}` here",
            ask.span,
            "as much as the limit itself, which is nothing",
            Label(line.value.span, "the limit"),
            help="write how much, as in `ask up to 5`",
        )


def _reserve_for(most: int, dimension: str) -> str:
    """A usual reserve as an example, smaller where the limit is small."""
    usual = {COUNT: 4_000, MONEY: 100_000, DURATION: 30_000}[dimension]
    return text_of(min(usual, max(1, most // 5)), dimension)


def _tried_reserve(line: LimitLine) -> bool:
    return any(isinstance(option, tree.Reserve) for option in getattr(line.node, "options", ()))
