"""Chance without a die: the same run and step always get the same unit, so that waits can be replayed."""

from __future__ import annotations

from hashlib import sha256

UNITS = 1000


def unit(run: str, step: object) -> int:
    """A number from 0 to 999, spread evenly over runs and steps."""
    return int.from_bytes(sha256(f"{run}:{step}".encode()).digest()[:4], "big") % UNITS
