"""An explanation for people: what happened, what was decided, why, what was left. Plain text, wrapped, no colour."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Final

from engine.core.decisions import AnyDecision
from engine.core.events import AnyEvent
from policy_lang.names import listed
from policy_lang.renderers.snippet import clean
from policy_lang.why import Answer, Explanation, LimitStanding, Look
from policy_lang.why.happened import decision_words, event_words, rules_of, seconds
from policy_lang.why.scene import quantity
from policy_lang.width import width

WIDTH: Final = 110
_TOGETHER: Final = "\N{FIGURE SPACE}"
"""Stands for a blank at which no line is broken."""

Excerpt = Callable[[str], Sequence[str]]
"""The lines of source that a rule (``file:line``) names; none where the file is not at hand."""


def _no_excerpt(because: str) -> Sequence[str]:
    return ()


def lines(told: Explanation, excerpt: Excerpt = _no_excerpt) -> list[str]:
    """The explanation, section by section, an empty line between two."""
    sections = [
        ("What happened", [_item(f"{_sentence(event_words(told.event))}")]),
        ("What was decided", _decided(told, excerpt)),
        *((_title(look), _rules(look)) for look in told.looks),
        ("Why", [_item(_sentence(f"no rule was asked: {told.unasked}"))] if told.unasked else []),
        ("What was left", [*_limits(told.limits), *_circumstances(told)]),
        ("What another decision would have needed", [_item(_sentence(text)) for text in told.otherwise]),
    ]
    out: list[str] = []
    for title, body in sections:
        if body:
            out += ["", *_wrapped(title, "", "  "), *body] if out else [title, *body]
    return [line for text in out for line in text.split("\n")]


def overview(steps: Sequence[tuple[AnyEvent, AnyDecision]], start: int) -> list[str]:
    """The steps of a run, each on a line: its number, the time since ``start`` (ms), event, decision, rule."""
    times = [seconds(event.at - start) for event, _ in steps]
    digits, longest = len(str(len(steps))), max(map(len, times), default=0)
    out = []
    for number, ((event, decision), time) in enumerate(zip(steps, times, strict=True), 1):
        said = f"{event_words(event)}: {decision_words(decision, event.at)}"
        first = f"  {number:>{digits}}  {time:>{longest}}  "
        out += _wrapped(said, first, " " * len(first), ", ".join(rules_of(decision)))
    return out


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1:] in '.!?' else '.'}"


def _wrapped(text: str, first: str, later: str, place: str = "") -> list[str]:
    """The text with the rule behind it, which stays on one line."""
    placed = f" [{clean(place).replace(' ', _TOGETHER)}]" if place else ""
    found = textwrap.wrap(
        f"{clean(text)}{placed}",
        WIDTH,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TOGETHER, " ") for line in found]


def _item(text: str, place: str = "", mark: str = "-") -> str:
    return "\n".join(_wrapped(text, f"  {mark} ", " " * (3 + len(mark)), place))


def _decided(told: Explanation, excerpt: Excerpt) -> list[str]:
    lines = rules_of(told.decision)
    out = [_item(_sentence(decision_words(told.decision, told.event.at)), ", ".join(lines))]
    for because in dict.fromkeys([*lines, *(rule.because for rule in _fired(told))]):
        out += [clean(f"    {line}") for line in excerpt(because)]
    return [*out, *(_item(_sentence(f"note: {note.text}"), note.because) for note in told.notes if note.text)]


def _fired(told: Explanation) -> list[Answer]:
    return [look.rules[-1] for look in told.looks]


def _title(look: Look) -> str:
    what = look.about
    if look.calls:
        one = "tool call" if len(look.calls) == 1 else "tool calls"
        what = f"{one} {listed(look.calls, 'and')}"
    return f"Why: {what}" if len(look.rules) == 1 else f"Why: {what}; the first rule that holds decides"


def _rules(look: Look) -> list[str]:
    """The rules in order; those that follow one another and have the same answer share it."""
    groups: list[list[Answer]] = []
    for rule in look.rules:
        last = groups[-1][-1] if groups else None
        if last is not None and (last.facts, last.because, last.holds) == (rule.facts, rule.because, rule.holds):
            groups[-1].append(rule)
        else:
            groups.append([rule])
    out, number, alone = [], 0, len(look.rules) == 1
    for group in groups:
        first, number = number + 1, number + len(group)
        mark = f"{first}." if first == number else f"{first}-{number}."
        questions = " ".join(dict.fromkeys(rule.question for rule in group))
        out.append(_item(f"{questions} {_answer(group[0], alone=alone)}", group[0].because, mark))
    return out


def _answer(rule: Answer, *, alone: bool) -> str:
    if rule.facts:
        return f"{'Yes' if rule.holds else 'No'}: {_joined(rule.facts)}."
    if not rule.holds:
        return "No."
    return "Yes, there is no other rule." if alone else "Yes, no rule before it holds."


def _joined(facts: Sequence[str]) -> str:
    return "; ".join(facts) if any(", " in fact or " and " in fact for fact in facts) else listed(facts, "and")


def _limits(limits: Sequence[LimitStanding]) -> list[str]:
    """A table: what was left of each limit, before and after."""
    if not limits:
        return ["  - This run has no limit of its own."]
    rows = [("limit", "before", "after"), *(_row(limit) for limit in limits)]
    widths = [max(width(row[i]) for row in rows) for i in range(3)]
    out = []
    for row, limit in zip(rows, (None, *limits), strict=True):
        cells = "  ".join(cell + " " * (size - width(cell)) for cell, size in zip(row, widths, strict=True)).rstrip()
        out += _wrapped(cells, "  ", "      ", "" if limit is None else limit.because)
        if limit is not None and limit.remarks:
            out += _wrapped(_sentence("; ".join(limit.remarks)), "      ", "      ")
    return out


def _row(limit: LimitStanding) -> tuple[str, str, str]:
    left = [
        f"{quantity(limit.resource, level.left)} of {quantity(limit.resource, level.maximum)} left"
        for level in (limit.before, limit.after)
    ]
    scope = "" if limit.limit.endswith(f" per {limit.scope}") else f" per {limit.scope}"
    return f"{limit.limit}{scope}", left[0], left[1]


def _circumstances(told: Explanation) -> list[str]:
    out = []
    for each in told.circumstances:
        then = f"; afterwards {each.after}" if each.after != each.before else ""
        out.append(_item(_sentence(f"{each.about}: {each.before}{then}"), each.because))
    return out
