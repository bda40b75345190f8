"""How much of an amount is kept for the last call, where nobody was asked."""

from __future__ import annotations

from typing import Final

from policy_lang.starting.questions import Answers

_ANSWER: Final = 200
"""Tokens of output that the last call should be able to have at least."""


def kept(answers: Answers, key: str) -> int:
    """What of ``tokens`` or ``cost`` is kept: a part of it, and at least what a short answer takes."""
    if key == "tokens":
        return max(part(int(answers[key])), _ANSWER)
    dearest: int = max(answers["output"], answers.get("fallback_output", 0))
    return max(part(answers[key]), -(-dearest * _ANSWER // 1_000_000))


def part(value: int) -> int:
    """About a twentieth, with one digit that is not zero, at least 1."""
    twentieth = max(value // 20, 1)
    size: int = 10 ** (len(str(twentieth)) - 1)
    return twentieth // size * size
