"""Which words of the language may stand where a name is expected, told by the line before it.

Tables over a ``Point``. They repeat nothing that the vocabulary says; what they say beside it a test holds against the
findings of the resolver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from engine.core.vocabulary import (
    COUNTED,
    DECISIONS,
    DEEDS,
    PHASES,
    POOLABLE,
    PREFER_ORDER,
    REASONS,
    RESOURCES,
    SCOPES,
    TREE_RESOURCES,
)
from policy_lang.language_server.point import TEXT, Point
from policy_lang.parser import RESERVED
from policy_lang.quantities import COUNT
from policy_lang.resolve.tests import REFUSAL_REASONS, STOP_REASONS, TOOL_ENDS

Words = Sequence[str]

_COUNTED: Final = tuple(name for name in RESOURCES if name != "attempt_wall")
_ASKABLE: Final = tuple(resource.name for resource in RESOURCES.values() if resource.askable)

_AFTER: Final[dict[str, dict[str, Words]]] = {
    "finalization": {
        "prefer": PREFER_ORDER,
        "over": PREFER_ORDER,
        "mode": ("proactive", "reactive"),
        "tools": ("strip", "forbid"),
    },
    "breaker": {
        "trip": ("same_args", "alternating", "failures", "same_result", "failure_rate", "slow"),
        "when_open": ("skip", "hide"),
        "count": ("denied",),
        "as": ("failure", "success", "nothing"),
        "per": ("args",),
        "apply": ("round_end", "now"),
    },
    "agents": {"share": POOLABLE, "carve": POOLABLE},
}
"""Block, and the word before it."""

_LIMITED: Final[dict[str, Words]] = {
    "limits": tuple(RESOURCES),
    "agent": tuple(RESOURCES),
    "agents": tuple(TREE_RESOURCES),
}

_BECAUSE: Final[dict[str, Words]] = {"final": PREFER_ORDER, "stop": STOP_REASONS, "refuse": REFUSAL_REASONS}


def words_at(point: Point) -> Words:
    """The language's own words that may stand here; none where it has none, or another kind of name is meant."""
    if point.last in _AFTER.get(point.block, {}):
        return _AFTER[point.block][point.last]
    if point.block == "test":
        return _in_test(point)
    if point.first == "verify":
        return _in_claim(point)
    if point.first == "at":
        return _in_threshold(point)
    if point.first == "on":
        return _in_failure(point)
    return _in_setting(point)


def _in_setting(point: Point) -> Words:
    if point.block == "agents" and point.first in ("share", "carve"):
        return POOLABLE if point.last == "," else ()
    if not point.words or point.words in (("override",), ("locked",)):
        return _LIMITED.get(point.block, ())
    if point.last == "per" and point.block in ("limits", "agent"):
        return RESOURCES[name].scopes if (name := resource_of(point)) in RESOURCES else SCOPES
    if point.last == "counting":
        return ("approvals",)
    return ()


def _in_threshold(point: Point) -> Words:
    if point.last == "of":
        return _COUNTED
    return ("warn", "tell", "use") if point.words[-2:-1] == ("of",) else ()


def _in_failure(point: Point) -> Words:
    if len(point.words) == 1:
        return ("llm_failure", "unknown_tool")
    if point.words[1:] == ("llm_failure",) or point.last == ",":
        return tuple(REASONS)
    return ("run", "call") if point.last == "for" else ()


def _in_test(point: Point) -> Words:
    words, last = point.words, point.last
    if point.first == "given" and (last in ("given", ",")):
        return (*_COUNTED, *TREE_RESOURCES)
    if point.first == "given" and last == "per":
        return RESOURCES[words[-3]].scopes if words[-3:-2] and words[-3] in RESOURCES else SCOPES
    if last == "fails" and point.first == "when":
        return tuple(REASONS)
    if words == ("when", "tool", TEXT):
        return tuple(TOOL_ENDS)
    if last == "because":
        return _BECAUSE.get(words[1], ())
    fixed = {"warn": tuple(RESOURCES), "ask": _ASKABLE, "count": COUNTED}
    return fixed.get(last, ()) if words == ("expect", last) else ()


def _in_claim(point: Point) -> Words:
    if point.last in ("always", "implies", "and", "or"):
        return (*COUNTED, "phase", "last")
    if point.last in ("never", "after") or (point.words[-2:-1] == ("at_most",)):
        return DEEDS
    before = [word for word in point.words if word != "not"]
    if before[-1:] != ["is"]:
        return ()
    return {"phase": PHASES, "last": DECISIONS}.get(before[-2], ())


def takes_client(point: Point) -> bool:
    """Is a client to be named here?"""
    return point.last in ("fallback", "->") or (point.first == "at" and point.last == "use")


def resource_of(point: Point) -> str:
    """The resource that the line is about, "" if it is about none."""
    words = [word for word in point.words if word not in ("override", "locked")]
    return words[0] if point.block in ("limits", "agent", "agents") and words else ""


def unit_at(point: Point) -> str:
    """The unit of the quantity that may stand here, "" if that depends on what nobody knows yet."""
    before = point.words[-2:-1]
    if point.first == "verify":
        if point.last in ("at_most", "within"):
            return COUNT
        return _unit(before[0]) if point.last in COMPARED else ""
    if point.first == "given" and before in (("given",), (",",)):
        return _unit(point.last)
    if point.words[:2] == ("expect", "count") and point.last == "=":
        return _unit(before[0])
    return _unit(point.last) if point.last == resource_of(point) else ""


COMPARED: Final = frozenset(("<=", ">=", "<", ">", "=", "!="))
"""The signs between a counter and an amount."""


def _unit(resource: str) -> str:
    if resource in RESOURCES:
        return RESOURCES[resource].unit
    return COUNT if resource in TREE_RESOURCES else ""


def out_of_place(point: Point) -> Iterable[str]:
    """Keywords that the grammar would take here and the resolver would not."""
    if point.first == "verify":
        return _out_of_claims(point)
    if point.first == "on":
        never = {"llm_failure": ("extend", "reply", "ask"), "unknown_tool": ("retry", "fallback")}
        return never.get(point.words[1] if len(point.words) > 1 else "", ())
    name = resource_of(point)
    if name in TREE_RESOURCES or point.block == "agents":
        return ("per", "reserve", "counting", "atomic", "partial", "then")
    resource = RESOURCES.get(name)
    if resource is None:
        return ()
    out = ["retry", "fallback", "reply"]
    out += [] if resource.extendable else ["extend"]
    out += [] if resource.askable else ["ask"]
    out += [] if resource.reservable else ["reserve"]
    out += [] if name == "tool_calls" else ["atomic", "partial"]
    out += [] if name == "wall" else ["counting"]
    out += [] if resource.scopes else ["per", "then"]
    return out


def _out_of_claims(point: Point) -> Iterable[str]:
    """A counter is compared, a phase and a decision are words; a ladder's verbs are words here where they are known."""
    instead: dict[str, Iterable[str]] = {"phase": COMPARED, "last": COMPARED, **dict.fromkeys(COUNTED, ("is",))}
    return {*RESERVED, *instead.get(point.last, ())} - set(words_at(point))


def takes_unlimited(point: Point) -> bool:
    """Does `unlimited` make sense here?"""
    if point.first in ("param", "let") and point.last == "=":
        return True
    return bool(resource_of(point)) and point.last == resource_of(point)


__all__ = ["COMPARED", "out_of_place", "resource_of", "takes_client", "takes_unlimited", "unit_at", "words_at"]
