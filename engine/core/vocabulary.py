"""The words of the field: resources, scopes, reasons, defaults. Constants only.

Imported by the language and by the core, so it must stay free of every dependency
(``policy check`` starts in milliseconds because of that).
"""

from __future__ import annotations

from typing import Final, NamedTuple

LANG: Final = 1
"""Version of the language a file must state (``lang 1``)."""

SEMANTICS_VERSION: Final = 1
"""Version of the meaning of a policy. Part of every fingerprint: a change of meaning changes it."""


class Resource(NamedTuple):
    """One resource a limit may name.

    ``unit`` is ``count``, ``money`` (integer micro-dollars) or ``duration`` (integer milliseconds).
    """

    name: str
    unit: str
    scope: str
    """Scope when none is written; empty for ``attempt_wall``, which has none."""
    scopes: tuple[str, ...]
    kind: str
    """``counted`` (moves by one, at admission) or ``amount`` (reported, or measured on the clock)."""
    extendable: bool = True
    """May a ladder contain ``extend``?"""
    reservable: bool = False

    @property
    def askable(self) -> bool:
        """May a ladder contain ``ask``? Time passes while nobody answers, so that nobody is asked for it."""
        return self.extendable and self.unit != "duration"


_EVERYWHERE: Final = ("run", "thread", "subtree", "node")

RESOURCES: Final[dict[str, Resource]] = {
    r.name: r
    for r in (
        Resource("llm_calls", "count", "run", _EVERYWHERE, "counted", extendable=False),
        Resource("llm_attempts", "count", "run", _EVERYWHERE, "counted"),
        Resource("tool_iterations", "count", "run", _EVERYWHERE, "counted"),
        Resource("tool_calls", "count", "subtree", _EVERYWHERE, "counted"),
        Resource("unknown_tools", "count", "run", _EVERYWHERE, "counted"),
        Resource("tokens", "count", "subtree", _EVERYWHERE, "amount", reservable=True),
        Resource("input_tokens", "count", "subtree", _EVERYWHERE, "amount", reservable=True),
        Resource("output_tokens", "count", "subtree", _EVERYWHERE, "amount", reservable=True),
        Resource("cost", "money", "subtree", _EVERYWHERE, "amount", reservable=True),
        Resource("wall", "duration", "subtree", ("run", "subtree"), "amount", reservable=True),
        Resource("attempt_wall", "duration", "", (), "amount", extendable=False),
    )
}


def limit_name(resource: str, scope: str | None) -> str:
    """How a limit is called, unique in a policy: ``llm_calls``, or ``tokens per thread`` where the scope was chosen."""
    return resource if scope is None or scope == RESOURCES[resource].scope else f"{resource} per {scope}"


TREE_RESOURCES: Final[dict[str, int | None]] = {"children": None, "live_children": None, "depth": 3, "concurrent": 8}
"""What limits a tree of agents, written in ``agents { }`` only, each with its maximum where none is written."""

POOLABLE: Final = tuple(r.name for r in RESOURCES.values() if "subtree" in r.scopes and r.unit != "duration")
"""Resources that children may ``share`` or ``carve``: there is one pool of them for a node and all below it."""

SCOPES: Final = _EVERYWHERE

PREFER_ORDER: Final = (
    "llm_calls",
    "tool_iterations",
    "tokens",
    "cost",
    "wall",
    "tool_calls",
    "unknown_tools",
    "llm_attempts",
    "input_tokens",
    "output_tokens",
    "llm_failure",
    "breaker",
)
"""Whose instruction a final call carries when several reasons meet, where ``prefer`` says nothing."""

REASONS: Final[dict[str, str | None]] = {
    "rate_limit": None,
    "context_exceeded": None,
    "provider": None,
    "unknown": None,
    "overloaded": "provider",
    "auth": "provider",
    "invalid_request": "provider",
    "content_filter": "provider",
    "timeout": "unknown",
    "network": "unknown",
    "truncated": "unknown",
    "aborted": "unknown",
    "host": None,
}
"""Why a model call failed, each with the broader reason that also matches it."""

COUNTED: Final = (*(name for name in RESOURCES if name != "attempt_wall"), "children", "live_children")
"""What a run counts of itself: what a test may expect of it, and a claim compare."""

PHASES: Final = ("idle", "calling", "final", "tools", "suspended", "stopping", "ended")
"""Where a run is, as a claim says it."""

DECISIONS: Final = (
    "continue",
    "wait",
    "call",
    "retry",
    "execute",
    "ask",
    "reply",
    "run_tools",
    "suspend",
    "spawn",
    "queue",
    "refuse",
    "resolve",
    "stop",
    "end",
)
"""What is decided on a legal event, as a claim names it."""

DEEDS: Final = ("finalize", "extend", "fallback", "retry", "call", "tool_call")
"""What a claim may count of a run, or order."""

PLACEHOLDERS: Final = ("left", "used", "limit", "tool", "resource")
"""What a text may contain in braces."""

DEFAULT_ATTEMPT_WALL_MS: Final = 600_000
DEFAULT_GRACE_MS: Final = 5_000
MAX_PAUSES: Final = 16
"""Further attempts of one call that a provider's ``pause`` may cause."""

DEFAULT_INSTRUCTION: Final = (
    "You have reached the limit of this run ({resource}). Do not call any tools. "
    "Give your best final answer now, from the information you already have."
)
"""Sent as the last user message of a final call when the policy names no text of its own."""

OCCASION_WORDS: Final = {"llm_failure": "a model call failed", "breaker": "a tool was switched off"}
"""What ``{resource}`` becomes in the instruction of a final call that no limit has caused."""

REFUSALS: Final[dict[str, str]] = {
    "unknown_tool": "There is no tool named `{tool}`. Use one of the tools you were offered.",
    "bad_arguments": "The arguments of `{tool}` are not valid: {problem}",
    "denied": "The tool `{tool}` is not available in this run.",
    "tool_limit": "The tool `{tool}` has reached its limit of {limit} calls in this run.",
    "tool_calls": "This call was not executed: the limit of {limit} tool calls has been reached.",
    "above": "This call was not executed: the agents of this run have reached their limit of {limit} tool calls.",
    "tool_iterations": "This call was not executed: the limit of {limit} tool rounds has been reached.",
    "breaker": "This call of `{tool}` is switched off for now, for it gets nowhere. Go on without it.",
    "refused": "A person did not allow this call of `{tool}`.",
    "expired": "Nobody allowed this call of `{tool}` in time.",
    "nobody": "The tool `{tool}` runs only if a person allows it, and nobody can be asked in this run.",
    "stopped": "This call was not executed: the run has ended.",
    "cancelled": "This call was cancelled before it finished.",
    "no_time": "This call was not executed: no time is left for it.",
    "timed_out": "This call took longer than it was allowed to and was cancelled.",
    "final": "This call was not executed: the answer had to be given without tools.",
    "handoff": "`{tool}` goes on with this conversation.",
    "handed_over": "This call was not executed: another agent goes on with this conversation already.",
}
"""The result a tool call gets when it is not executed, by reason."""

ROUND_REFUSAL: Final = (
    "This call was not executed: the limit of {limit} tool calls leaves {left}, fewer than were asked for together."
)
"""The same for the reason ``tool_calls`` where an atomic limit has something left, but not enough for the round."""
