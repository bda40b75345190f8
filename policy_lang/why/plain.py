"""An explanation for programs: the same facts as plain data."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from policy_lang.why import Explanation, LimitStanding
from policy_lang.why.happened import decision_words, event_words


def plain(told: Explanation) -> dict[str, Any]:
    """Times in milliseconds, money in micro-dollars, counts as they are."""
    return {
        "event": to_builtins(told.event),
        "event_words": event_words(told.event),
        "decision": to_builtins(told.decision),
        "decision_words": decision_words(told.decision, told.event.at),
        "because": told.because,
        "rule": told.rule,
        "why": [asdict(look) for look in told.looks],
        "no_rule": told.unasked,
        "limits": [_limit(limit) for limit in told.limits],
        "circumstances": [asdict(each) for each in told.circumstances],
        "otherwise": list(told.otherwise),
    }


def _limit(limit: LimitStanding) -> dict[str, Any]:
    levels = {
        name: {"used": level.used, "maximum": level.maximum, "left": level.left}
        for name, level in (("before", limit.before), ("after", limit.after))
    }
    return asdict(limit) | levels
