"""What ``policy replay`` and ``policy backtest`` share: which runs are meant, and a decision then and now in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.store.compare import Difference


class Unusable(Exception):
    """The arguments name nothing that can be replayed. The message says what can be done."""


def chosen(runs: list[str], wanted: str | None, journal: str) -> list[str]:
    if not runs:
        raise Unusable(f"{journal}: no run was ever written to it")
    if wanted is None or wanted in runs:
        return runs if wanted is None else [wanted]
    found = [run for run in runs if run.startswith(wanted)]
    if len(found) == 1:
        return found
    if found:
        raise Unusable(
            f"{journal}: the ids of {len(found)} runs begin with {wanted!r}, such as {' and '.join(found[:2])}"
        )
    raise Unusable(f"{journal}: it has no run {wanted!r}; its last ones are {', '.join(runs[-3:])}")


def then_and_now(difference: Difference, started: int) -> list[str]:
    """The event, the decision on record and today's, each with its rule. ``started``: when the run began (ms)."""
    from policy_lang.why.happened import decision_words, event_words, rules, seconds

    event, then, now = difference.step.event, difference.step.decision, difference.now
    words = [decision_words(then, event.at), decision_words(now, event.at)]
    width = max(map(len, words)) + 2
    then_rule, now_rule = rules(then, now)
    return [
        f"  event  {event_words(event)}, {seconds(event.at - started)} after the start",
        f"  then   {words[0]:<{width}}[{then_rule or 'no rule'}]",
        f"  now    {words[1]:<{width}}[{now_rule or 'no rule'}]",
    ]


def printable(line: str) -> str:
    """A line without control characters: names come from models, and terminals obey what they are sent."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def difference_json(difference: Difference) -> dict[str, Any]:
    from msgspec import to_builtins

    from policy_lang.why.happened import decision_words, event_words, rules

    event, then, now = difference.step.event, difference.step.decision, difference.now
    then_rule, now_rule = rules(then, now)
    return {
        "number": difference.number + 1,
        "event": to_builtins(event),
        "event_words": event_words(event),
        "then": to_builtins(then),
        "then_words": decision_words(then, event.at),
        "then_rule": then_rule,
        "now": to_builtins(now),
        "now_words": decision_words(now, event.at),
        "now_rule": now_rule,
    }
