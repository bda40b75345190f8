"""The first difference between the policy that a run began with and another, in words. Knows policies, no runs.

Compared is what policies mean (``Policy.canonical``), so that only what changes a decision is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.core.policy import Policy
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES, limit_name

_LONGEST: Final = 60

_Named = Callable[[Mapping[str, Any]], str]

_LISTS: Final[Mapping[str, _Named]] = {
    "limits": lambda x: f"limit {limit_name(x['resource'], x.get('scope'))}",
    "thresholds": lambda x: f"at {x['percent']}% of {x['resource']} {x['action']}",
    "failures": lambda x: f"on llm_failure {' '.join(x['reasons'])}",
    "breakers": lambda x: f'breaker "{x["glob"]}"',
    "tools": lambda x: f'tool "{x["glob"]}"',
    "prices": lambda x: f"price of {x['model']}",
    "agent": lambda x: f'agent "{x["name"]}"',
}
"""Parts of a policy that are lists, with what each entry is called."""


def first_difference(then: Policy, now: Policy) -> str:
    """``limit llm_calls: 5 in the journal, 8 now``; empty if both mean the same."""
    return _of_parts(then.canonical(), now.canonical())


def _of_parts(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    for part, named in _LISTS.items():
        if found := _of_lists(named, then.get(part, []), now.get(part, [])):
            return found
    for part in sorted((then.keys() | now.keys()) - _LISTS.keys()):
        if then.get(part) != now.get(part):
            return _of_values(part, then.get(part), now.get(part), "count")
    return ""


def _of_lists(named: _Named, then: list[Mapping[str, Any]], now: list[Mapping[str, Any]]) -> str:
    """Entries of one name are compared in their order; what only one side has is told as a whole."""
    before, after = _grouped(named, then), _grouped(named, now)
    for name in (*before, *(name for name in after if name not in before)):
        mine, theirs = before.get(name, []), after.get(name, [])
        for one, other in zip(mine, theirs, strict=False):
            if one != other:
                return _of_entries(name, one, other)
        if len(mine) > len(theirs):
            return f"{name}: {_whole(mine[len(theirs)])} in the journal, not now"
        if len(theirs) > len(mine):
            return f"{name}: not in the journal, {_whole(theirs[len(mine)])} now"
    return ""


def _grouped(named: _Named, entries: list[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        found.setdefault(named(entry), []).append(entry)
    return found


def _of_entries(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if "name" in then:  # the block of an agent
        inside = _of_parts(
            {key: value for key, value in then.items() if key != "name"},
            {key: value for key, value in now.items() if key != "name"},
        )
        return f"{name}, {inside}"
    resource = then.get("resource", "")
    field = next(key for key in ("max", *sorted(then.keys() | now.keys())) if then.get(key) != now.get(key))
    known = RESOURCES[resource].unit if resource in RESOURCES else "count"
    unit = "duration" if field in _DURATIONS else known
    called = name if field == "max" else f"{name}, {_FIELDS.get(field, field)}"
    return _of_values(called, then.get(field), now.get(field), unit)


_DURATIONS: Final = ("timeout", "ask_within", "reset")
_FIELDS: Final = {"then": "ladder", "ask_within": "ask within"}


def _of_values(name: str, then: Any, now: Any, unit: str) -> str:
    return f"{name}: {_words(then, unit)} in the journal, {_words(now, unit)} now"


def _whole(entry: Mapping[str, Any]) -> str:
    if "max" in entry and entry.get("resource") in RESOURCES:
        return _words(entry["max"], RESOURCES[entry["resource"]].unit)
    return "there"


def _words(value: Any, unit: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return quantity(unit, value)
    if isinstance(value, list) and value and all(isinstance(step, dict) and "do" in step for step in value):
        return " then ".join(_step(step) for step in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _step(step: Mapping[str, Any]) -> str:
    rest = [f"{key} {_words(value, 'count')}" for key, value in step.items() if key != "do"]
    return f"{step['do']} ({', '.join(rest)})" if rest else str(step["do"])
