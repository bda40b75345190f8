"""How the parts of a policy are called in English, and how its quantities and texts are written.

Words only. What a limit does is said in ``explain_limits``, the whole reading is put together in ``explain``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.core.vocabulary import RESOURCES
from policy_lang.quantities import text_of


class Noun(NamedTuple):
    """What a limit allows: ``one`` and ``many`` of it, the verb before, and what follows the noun."""

    verb: str
    one: str
    many: str
    rest: str = ""


NOUNS: Final = {
    "llm_calls": Noun("makes", "model call", "model calls"),
    "llm_attempts": Noun("sends", "request to a model", "requests to models", ", retries included"),
    "tool_iterations": Noun("has", "round of tool calls", "rounds of tool calls"),
    "tool_calls": Noun("executes", "tool call", "tool calls"),
    "unknown_tools": Noun(
        "makes",
        "call of a tool that nobody registered",
        "calls of tools that nobody registered",
        ", each answered with a refusal",
    ),
    "tokens": Noun("uses", "token", "tokens"),
    "input_tokens": Noun("sends", "input token", "input tokens"),
    "output_tokens": Noun("receives", "output token", "output tokens"),
    "cost": Noun("costs", "", ""),
    "wall": Noun("lasts", "", ""),
}
"""``attempt_wall`` is missing: its limit is about an attempt, not about a run."""

SUBJECTS: Final = {
    "run": "A run",
    "thread": "A thread, all its runs together,",
    "subtree": "A run (agents below it included)",
    "node": "A run (agents below it not included)",
}


def amount(resource: str, value: int | None) -> str:
    """A quantity of a resource as the language writes it; counts of what a run does are written in full."""
    known = RESOURCES[resource]
    if known.kind == "counted" and value is not None:
        return str(value)
    return text_of(value, known.unit)


def at_most(resource: str, value: int) -> str:
    """``makes at most 20 model calls``, ``makes no model calls``, ``lasts at most 5m30s``."""
    noun = NOUNS[resource]
    if not noun.many:
        return f"{noun.verb} at most {amount(resource, value)}"
    if value == 0:
        return f"{noun.verb} no {noun.many}{'' if resource == 'unknown_tools' else noun.rest}"
    return f"{noun.verb} at most {amount(resource, value)} {noun.one if value == 1 else noun.many}{noun.rest}"


def ended(text: str) -> str:
    """The text as a sentence; a quoted text that ends one stays as it is."""
    return text if text[-1:] in ".!?" or text[-2:] in ('."', '!"', '?"') else f"{text}."
