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

_WHOLE: Final = ("veto", "rounds", "route", "attempts", "gate", "close", "rewrite", "usage", "ends")
"""What a host can do that shows every call before it is made, and every tool before it is run."""

HOSTS: Final[dict[str, tuple[str, ...]]] = {
    "own": FULL,
    "restate": FULL,
    "dbos": FULL,
    "temporal": FULL,
    "langchain": (*_WHOLE, "strip", "cancel", "suspend"),
    "openai-agents": (*_WHOLE, "strip", "cancel", "suspend"),
    "pydantic-ai": (*_WHOLE, "strip", "cancel", "suspend"),
    "google-adk": (*_WHOLE, "strip", "cancel", "suspend"),
    "agent-framework": (*_WHOLE, "strip", "cancel", "suspend"),
    "anthropic": (*_WHOLE, "strip", "forbid", "cancel", "suspend"),
    "openai": (*_WHOLE, "strip", "forbid", "cancel", "suspend"),
    "litellm": (*_WHOLE, "strip", "forbid", "cancel", "suspend"),
    "gateway": ("veto", "rounds", "strip", "forbid", "route", "attempts", "gate", "close", "rewrite", "usage"),
}
"""Environments by name, and what each is able to do."""

LIMITS: Final[dict[str, tuple[str, ...]]] = {
    "llm_attempts": ("attempts",),
    "tool_iterations": ("rounds",),
    "tool_calls": ("gate",),
    "unknown_tools": ("gate",),
    **dict.fromkeys(("tokens", "input_tokens", "output_tokens", "cost"), ("usage",)),
}
"""What a limit on a resource needs beside ``veto``, for each resource that needs more."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "agents": ("spawn",),
    "ask": ("suspend",),
    "breaker": ("gate", "ends"),
    "deny": ("gate",),
    "fallback": ("route",),
    "limit": ("gate",),
    "retry": ("attempts",),
    "timeout": ("cancel",),
    "tool ask": ("gate", "suspend"),
    "tool retry": ("ends",),
    "use": ("route",),
}
"""What a statement, clause or step needs, by its word; ``finalize``: see ``final_needs``."""


def final_needs(tools: str) -> tuple[str, ...]:
    """What a final call needs, whose tools are withheld in this way (``finalization``'s ``tools``)."""
    return ("veto", "forbid" if tools == "forbid" else "strip")


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

OF_CHILDREN: Final = "L7"
"""The law that says nothing of a run without children."""


def missing_laws(profile: tuple[str, ...]) -> tuple[str, ...]:
    """The laws that a host with this profile cannot keep, in order."""
    return tuple(law for law, groups in NEEDS.items() if not all(any(a in profile for a in g) for g in groups))
