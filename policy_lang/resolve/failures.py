"""``on llm_failure REASONS STEPS``: the ladder of a failed model call.

One statement is judged by itself here, and the statements of one file against each other: a reason has one rule.
What a base's rules do to it is ``merge``'s business.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.core.vocabulary import REASONS
from policy_lang import removals, tree
from policy_lang.diagnostics import SAYS, Label
from policy_lang.names import quoted
from policy_lang.quantities import DURATION
from policy_lang.report import Report
from policy_lang.resolve.limits import origin
from policy_lang.resolve.reach import Reach
from policy_lang.resolve.steps import consult_step, finalize_step, nothing_to_choose, retry_step, unreachable
from policy_lang.resolve.values import Use, Values
from policy_lang.source import Span

_OUT_OF_PLACE = {
    tree.Extend: "only a limit is extended",
    tree.Reply: "calls of unknown tools are answered by `on unknown_tool`",
    tree.Ask: "nobody is asked about a failed call; `consult` asks a function of the host",
}

_NOT_CURED = ("context_exceeded", "auth", "invalid_request", "content_filter")
"""Reasons for which the same request fails again."""


class FailureLine(NamedTuple):
    """A rule as one file states it. ``data`` has the shape of the policy's JSON; ``places`` says where each reason
    stands, ``steps`` holds the nodes of ``data["then"]``, one for one."""

    data: dict[str, Any]
    node: tree.On
    places: dict[str, Span]
    steps: tuple[tree.Step, ...]

    def only(self, reasons: list[str]) -> FailureLine:
        """The same rule for fewer reasons."""
        return self._replace(data={**self.data, "reasons": reasons})


def failure(line: tree.On, values: Values) -> FailureLine | None:
    """Judge one statement. ``None`` if it is too wrong to mean anything."""
    places = _reasons(line, values)
    then, steps = _ladder(line.steps, values)
    _not_cured(places, steps, values.report)
    if not places or not then:
        return None
    data = {"reasons": list(places), "then": then, "origin": origin(line.span)}
    return FailureLine(data, line, places, steps)


def repeated(line: FailureLine, earlier: list[FailureLine], report: Report) -> FailureLine | None:
    """The rule without the reasons that an earlier one of the same file has, which are reported."""
    kept = []
    for reason, span in line.places.items():
        first = next((other.places[reason] for other in earlier if reason in other.places), None)
        if first is None:
            kept.append(reason)
        else:
            _two_rules(reason, span, first, report)
    return line.only(kept) if kept else None


def _two_rules(reason: str, span: Span, first: Span, report: Report) -> None:
    report.error(
        "P320",
        f"`{reason}` has two rules",
        span,
        "again",
        Label(first, "first here"),
        help="a reason has one ladder: write all its steps in one rule",
    )


# ---- reasons


def _reasons(line: tree.On, values: Values) -> dict[str, Span]:
    """The reasons of a rule, each with its place."""
    if line.reasons is None:
        values.report.error(
            "P101",
            "`on llm_failure` needs a reason",
            line.what.span,
            "expected a reason behind it",
            help="`*` is every reason but `host`",
        )
    found: dict[str, Span] = {}
    words = line.reasons or ()
    for place, word in enumerate(words):
        reason = "*" if isinstance(word, tree.Star) else values.word(word, tuple(REASONS), "reason")
        if reason is None:
            continue
        if reason in found:
            values.report.error(
                "P320",
                f"`{reason}` is named twice",
                word.span,
                "again",
                Label(found[reason], "first here"),
                help="name each reason once",
                fix=removals.item(words[place - 1].span, word.span),
                safety=SAYS,
            )
        found.setdefault(reason, word.span)
    return found


def _not_cured(places: dict[str, Span], steps: tuple[tree.Step, ...], report: Report) -> None:
    named = [reason for reason in places if reason in _NOT_CURED]
    retry = next((step for step in steps if isinstance(step, tree.Retry)), None)
    if named and retry:
        report.warn(
            "P312",
            f"trying again does not cure {quoted(named)}",
            retry.span,
            "fails the same way again",
            *(Label(places[reason], "the same request has the same fault") for reason in named[:1]),
            help="remove this `retry`" if len(named) == len(places) else f"give {quoted(named, 'and')} another rule",
            fix=removals.step(retry.span, _following(retry, steps)) if len(named) == len(places) else (),
        )


def _following(step: tree.Step, steps: tuple[tree.Step, ...]) -> Span | None:
    """The place of the step behind another."""
    behind = steps[steps.index(step) + 1 :]
    return behind[0].span if behind else None


# ---- steps


def _ladder(steps: tuple[tree.Step, ...], values: Values) -> tuple[list[dict[str, Any]], tuple[tree.Step, ...]]:
    """The steps in the shape of the policy's JSON, wrong ones left out, and the nodes they come from."""
    made: list[dict[str, Any]] = []
    nodes: list[tree.Step] = []
    final: tree.Step | None = None
    reach = Reach(final_ends=False)
    for place, step in enumerate(steps):
        if barrier := reach.barrier(step):
            ended, why = barrier
            unreachable(step, ended, values.report, why)
            steps = steps[:place]
            break
        if isinstance(step, tree.Finalize | tree.FinalizeUsing):
            if final is not None:
                unreachable(step, final, values.report, "a run has one final call")
                continue
            final = step
        if data := _step(step, values):
            made.append(data)
            nodes.append(step)
    nothing_to_choose(steps, values.report)
    _idle_fallbacks(made, nodes, values.report)
    return made, tuple(nodes)


def _step(step: tree.Step, values: Values) -> dict[str, Any] | None:
    match step:
        case tree.Stop():
            return {"do": "stop"}
        case tree.Finalize() | tree.FinalizeUsing():
            return finalize_step(step, values)
        case tree.Retry():
            return retry_step(step.count, step.every, values)
        case tree.Fallback():
            return _fallback(step, values)
        case tree.Consult():
            return next(iter(consult_step(step)), None)
        case _:
            values.report.error(
                "P208",
                f"`{step.keyword}` is no step for a failed call",
                step.span,
                "expected `retry`, `fallback`, `finalize`, `consult` or `stop`",
                help=_OUT_OF_PLACE[type(step)],
            )
            return None


# ---- fallbacks


def _fallback(step: tree.Fallback, values: Values) -> dict[str, Any] | None:
    places: dict[str, Span] = {}
    last = ""
    for place, word in enumerate(step.clients):
        name = values.client(word)
        if name in places:
            values.report.error(
                "P306",
                f"`{name}` falls back to itself" if name == last else f"`{name}` stands in this chain twice",
                word.span,
                "again",
                Label(places[name], "first here"),
                help="a client that has failed is not asked again: name each once",
                fix=removals.item(step.clients[place - 1].span, word.span),
                safety=SAYS,
            )
        elif name is not None:
            places[name] = word.span
        last = name or ""
    lasting = _lasting(step.lasting, values)
    if not places or lasting is None:
        return None
    scope, milliseconds = lasting
    return {"do": "fallback", "clients": list(places), "scope": scope, "ms": milliseconds}


def _lasting(value: tree.Value | None, values: Values) -> tuple[str, int | None] | None:
    """How long a switch lasts: its scope, and milliseconds if it is a time."""
    if value is None:
        return "run", None
    if isinstance(value, tree.Name) and not values.names.find(value.text):
        word = values.word(value, ("run", "call"), "time of a fallback")
        return (word, None) if word else None
    found = values.amount(value, Use("`for`", DURATION, least=1, zero="write `for call`"))
    return ("time", found.value) if found else None


def _idle_fallbacks(made: list[dict[str, Any]], nodes: list[tree.Step], report: Report) -> None:
    """A later `fallback` to nothing but clients that an earlier one has tried, or could not try either."""
    tried: dict[str, tree.Step] = {}
    tried_for_less: dict[str, tree.Step] = {}
    for data, node in zip(made, nodes, strict=True):
        if data["do"] != "fallback":
            continue
        # A switch for the run excludes a client from later ones for the run only.
        known = tried if data["scope"] == "run" else tried_for_less
        if all(name in known for name in data["clients"]):
            report.error(
                "P306",
                "this `fallback` has no client that is left",
                node.span,
                "never taken",
                Label(known[data["clients"][0]].span, "tried here already"),
                help="name another client, or remove it",
            )
        for name in data["clients"]:
            tried.setdefault(name, node)
            if data["scope"] != "run":
                tried_for_less.setdefault(name, node)
