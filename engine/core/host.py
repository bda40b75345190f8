"""Host profiles: what an environment that drives a run is able to do.

A profile is a set of abilities. ``RunStarted`` carries it; what a host cannot do is
reported, and the laws it costs are known (``missing_laws``).
"""

from __future__ import annotations

from typing import Final

ABILITIES: Final[dict[str, str]] = {
    "veto": "can refuse a model call before it is made",
    "rounds": "shows a whole reply before any of its tools starts",
    "strip": "can remove the tools from a request",
    "forbid": "can declare tools and forbid their use",
    "route": "can send a call to another client",
    "attempts": "sees every request on the wire",
    "gate": "can refuse a tool just before it starts",
    "close": "can store a result for a call that was not executed",
    "rewrite": "can remove a call from a stored reply",
    "cancel": "can cancel a model call and a tool that are running",
    "suspend": "can wait for people without a process",
    "spawn": "can start runs of other agents",
    "retract": "can take back text it has shown",
    "usage": "reports the usage of every attempt",
    "ends": "reports the end of every tool",
}

FULL: Final[tuple[str, ...]] = tuple(ABILITIES)
"""Our own driver and the durable engines."""

NEEDS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "L1": (("veto",), ("rounds",)),
    "L2": (("veto",), ("strip", "forbid")),
    "L3": (("close", "rewrite"),),
    "L6": (("gate",),),
    "L7": (("spawn",),),
    "L8": (("veto",), ("gate",)),
    "L13": (("route",),),
    "L14": (("gate",),),
}
"""What a law needs from a host: every group, by any one ability of it."""


def missing_laws(profile: tuple[str, ...]) -> tuple[str, ...]:
    """The laws that a host with this profile cannot keep, in order."""
    return tuple(law for law, groups in NEEDS.items() if not all(any(a in profile for a in g) for g in groups))
