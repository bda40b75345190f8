"""What is drawn on pools: one number for each poolable resource, in one fixed order.

Tuples rather than records, because they are added up along every path of a tree, on every event.
"""

from __future__ import annotations

from typing import Final

from engine.core.state import Used

RESOURCES: Final = (
    "llm_calls",
    "llm_attempts",
    "tool_iterations",
    "tool_calls",
    "unknown_tools",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
)
"""The resources that a pool may hold, in the order of a ``Draw``."""

LLM_CALLS, LLM_ATTEMPTS, TOOL_ITERATIONS, TOOL_CALLS, UNKNOWN_TOOLS, TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, COST = range(
    9
)

BY_CALLS: Final = frozenset((LLM_CALLS, LLM_ATTEMPTS, TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, COST))
"""What every model call draws on; the others are drawn on by tools."""

Draw = tuple[int, int, int, int, int, int, int, int, int]
"""An amount of each of ``RESOURCES``: counts, tokens, micro-dollars."""

NOTHING: Final[Draw] = (0, 0, 0, 0, 0, 0, 0, 0, 0)


def draw_of(used: Used) -> Draw:
    """What a run has used, as a draw."""
    return (
        used.llm_calls,
        used.llm_attempts,
        used.tool_iterations,
        used.tool_calls,
        used.unknown_tools,
        used.input_tokens + used.output_tokens,
        used.input_tokens,
        used.output_tokens,
        used.cost,
    )


def request(input_tokens: int, output_tokens: int, micro_dollars: int) -> Draw:
    """What a request may use besides the call and the attempt, which are counted when it is admitted."""
    return (0, 0, 0, 0, 0, input_tokens + output_tokens, input_tokens, output_tokens, micro_dollars)


def minus(a: Draw, b: Draw) -> Draw:
    """``a`` less ``b``, resource by resource."""
    return tuple(x - y for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def less(a: Draw, b: Draw) -> Draw:
    """``a`` without ``b``, but nothing below 0."""
    return tuple(max(0, x - y) for x, y in zip(a, b, strict=True))  # type: ignore[return-value]
