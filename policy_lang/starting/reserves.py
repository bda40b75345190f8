"""How much of an amount is kept for the last call, where nobody was asked."""

from __future__ import annotations


def reserve(value: int) -> int:
    """About a twentieth, with one digit that is not zero, at least 1."""
    part = max(value // 20, 1)
    size: int = 10 ** (len(str(part)) - 1)
    return part // size * size
