"""A policy changed in every small way: a number by one, a step, a reason or a rule less, two steps in the other order.

Knows what a policy says, as data; whether a change makes a difference is for others to see.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from engine.core.policy import Policy
from engine.core.texts import quantity
from engine.core.vocabulary import RESOURCES

Data = dict[str, Any]

Change = tuple[str, Callable[[Data], None]]
"""What is changed, in words, and how: given the statement it changes it in place."""


class Mutant(NamedTuple):
    """A policy with one change. ``agent`` is whose block it is in, empty for the policy's own statements."""

    line: int
    what: str
    agent: str
    policy: Policy


def mutants(policy: Policy, path: str) -> list[Callable[[], Mutant | None]]:
    """Every change of a statement that stands in this file, in the order of its lines, to be made when it is wanted;
    ``None`` comes of one that leaves no policy, or the same one."""
    data = policy.model_dump(mode="json")
    own = [(line, place) for place in _places(data) if (line := _line(_at(data, place), path))]
    return [
        partial(_made, policy, data, place, line, what, change)
        for line, place in sorted(own, key=lambda one: one[0])
        for what, change in _CHANGES[_part(place)](_at(data, place))
    ]


Place = tuple[str | int, ...]


def _places(data: Data) -> Iterator[Place]:
    """Where statements are: ``("limits", 0)``."""
    blocks: list[Place] = [(), *(("agent", i) for i in range(len(data["agent"])))]
    for block in blocks:
        for part in _OF_PART:
            for number in range(len(_at(data, block).get(part) or ())):
                yield (*block, part, number)
    yield ("finalization",)
    if data["agents"]:
        yield from (("agents", "limits", n) for n in range(len(data["agents"]["limits"])))


def _at(data: Any, place: Place) -> Any:
    for key in place:
        data = data[key]
    return data


def _line(statement: Data, path: str) -> int:
    """Where it stands in this file; 0 if it does not."""
    origin = statement.get("origin")
    return int(origin["line"]) if origin and origin["file"] == path else 0


def _part(place: Place) -> str:
    *around, last = place
    return "tree" if "agents" in around else str(around[-1] if around else last)


def _made(
    policy: Policy, data: Data, place: Place, line: int, what: str, change: Callable[[Data], None]
) -> Mutant | None:
    changed = copy.deepcopy(data)
    change(_at(changed, place))
    if len(place) > 1:
        kept = _at(changed, place[:-1])
        kept[:] = [one for one in kept if one]  # a statement that was emptied is dropped
    try:
        made = Policy.model_validate(changed)
    except ValidationError:
        return None
    agent = _at(data, place[:2])["name"] if place[:1] == ("agent",) else ""
    return Mutant(line, what, agent, made) if made.fingerprint() != policy.fingerprint() else None


# ---- changes of statements


def _limit(limit: Data) -> Iterator[Change]:
    name, unit = limit["resource"], RESOURCES[limit["resource"]].unit
    yield f"`{name}` dropped", dict.clear
    yield from _number(limit, "max", f"`{name}`", unit)
    if limit["reserve"]:
        yield from _number(limit, "reserve", f"`{name}` reserve", unit)
        yield f"`{name}` without its reserve", _set("reserve", 0)
    for scope in RESOURCES[name].scopes:
        if scope != limit["scope"]:
            yield f"`{name}` per {limit['scope']} -> per {scope}", _set("scope", scope)
    for flag in ("atomic", "counting_approvals"):
        if limit[flag]:
            yield f"`{name}` not {flag.replace('_', ' ')}", _set(flag, False)
    yield from _ladder(limit["then"], f"`{name}`", unit)


def _failure(rule: Data) -> Iterator[Change]:
    name = f"`on llm_failure {', '.join(rule['reasons'])}`"
    yield f"{name} dropped", dict.clear
    if len(rule["reasons"]) > 1:
        for reason in rule["reasons"]:
            yield f"{name} without {reason}", _set("reasons", [r for r in rule["reasons"] if r != reason])
    yield from _ladder(rule["then"], name, "count")


def _ladder(steps: list[Data], name: str, unit: str) -> Iterator[Change]:
    for place, step in enumerate(steps):
        word = f"step {place + 1}, `{step['do']}`, of {name}"
        yield f"{word} dropped", _set("then", steps[:place] + steps[place + 1 :])
        if place + 1 < len(steps):
            pair = [steps[place + 1], step]
            other = f"`{steps[place + 1]['do']}`"
            yield f"{word} behind {other}", _set("then", [*steps[:place], *pair, *steps[place + 2 :]])
        for key, of in (("by", unit), ("up_to", unit), ("times", "count"), ("least", "duration"), ("most", "duration")):
            if isinstance(step.get(key), int):
                for new in _nudged(step[key], of):
                    changed = [*steps[:place], {**step, key: new}, *steps[place + 1 :]]
                    yield _moved(f"{word}: {key.replace('_', ' ')}", step[key], new, of), _set("then", changed)
        for client in step.get("clients", ()) if len(step.get("clients", ())) > 1 else ():
            left = {**step, "clients": [c for c in step["clients"] if c != client]}
            yield f"{word} without {client}", _set("then", [*steps[:place], left, *steps[place + 1 :]])


def _tool(rule: Data) -> Iterator[Change]:
    name = f'`tool "{rule["glob"]}"`'
    yield f"{name} dropped", dict.clear
    yield from _number(rule, "limit", f"{name} limit", "count")
    yield from _number(rule, "timeout", f"{name} timeout", "duration")
    yield from _number(rule, "ask_within", f"{name} ask within", "duration")
    if rule["retry"]:
        for new in _nudged(rule["retry"]["times"], "count"):
            what = _moved(f"{name} retry", rule["retry"]["times"], new, "count")
            yield what, _set("retry", {**rule["retry"], "times": new})


def _breaker(breaker: Data) -> Iterator[Change]:
    name = f'`breaker "{breaker["glob"]}"`'
    yield f"{name} dropped", dict.clear
    trips = breaker["trips"]
    for place, trip in enumerate(trips):
        if len(trips) > 1:
            yield f"{name} without {trip['kind']}", _set("trips", trips[:place] + trips[place + 1 :])
        for key, unit in (("n", "count"), ("percent", "count"), ("ms", "duration")):
            by = 2 if trip["kind"] == "alternating" and key == "n" else 1
            for new in _nudged(trip[key], unit, by) if trip[key] is not None else ():
                changed = [*trips[:place], {**trip, key: new}, *trips[place + 1 :]]
                yield _moved(f"{name} {trip['kind']} {key}", trip[key], new, unit), _set("trips", changed)
    yield from _number(breaker, "reset", f"{name} reset", "duration")
    yield from _number(breaker, "probe", f"{name} probe", "count")
    if breaker["when_open"] != "skip":
        yield f"{name} when open {breaker['when_open']} -> skip", _plain_skip
    if breaker["count_denied"] != "nothing":
        yield f"{name} counts denied as nothing", _set("count_denied", "nothing")


def _plain_skip(breaker: Data) -> None:
    breaker.update(when_open="skip", text=None, using=None)


def _threshold(threshold: Data) -> Iterator[Change]:
    name = f"`at {threshold['percent']}% of {threshold['resource']}`"
    yield f"{name} dropped", dict.clear
    yield from _number(threshold, "percent", f"{name}:", "count")


def _finalization(block: Data) -> Iterator[Change]:
    other = "reactive" if block["mode"] == "proactive" else "proactive"
    yield f"mode {block['mode']} -> {other}", lambda b: b.update(mode=other, text=None, using=None)
    tools = "forbid" if block["tools"] == "strip" else "strip"
    yield f"tools {block['tools']} -> {tools}", _set("tools", tools)
    yield from _number(block, "empty_retries", "empty retry", "count")
    if block["prefer"]:
        yield "prefer dropped", _set("prefer", [])


def _tree(limit: Data) -> Iterator[Change]:
    yield f"`{limit['resource']}` dropped", dict.clear
    yield from _number(limit, "max", f"`{limit['resource']}`", "count")


_CHANGES: dict[str, Callable[[Data], Iterator[Change]]] = {
    "limits": _limit,
    "failures": _failure,
    "tools": _tool,
    "breakers": _breaker,
    "thresholds": _threshold,
    "finalization": _finalization,
    "tree": _tree,
}
_OF_PART = ("limits", "failures", "tools", "breakers", "thresholds")


# ---- numbers


def _set(key: str, value: Any) -> Callable[[Data], None]:
    return lambda statement: statement.update({key: value})


def _number(statement: Data, key: str, name: str, unit: str) -> Iterator[Change]:
    value = statement[key]
    if isinstance(value, int):
        for new in _nudged(value, unit):
            yield _moved(name, value, new, unit), _set(key, new)


def _moved(name: str, old: int, new: int, unit: str) -> str:
    return f"{name} {quantity(unit, old)} -> {quantity(unit, new)}"


_SCALES = {
    "duration": (3_600_000, 60_000, 1_000, 1),
    "money": (1_000_000, 10_000, 1),
}
_COUNTS = (1_000_000, 1_000, 1)


def _nudged(value: int, unit: str, by: int = 1) -> Iterator[int]:
    """One less and one more, of what a person would write it in: of 30s a second, of 200000 a thousand."""
    scale = next((s for s in _SCALES.get(unit, _COUNTS) if value and value % s == 0), 1)
    yield from (new for new in (value - by * scale, value + by * scale) if new >= 0)
