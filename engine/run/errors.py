"""What a driver says of something it was asked for and cannot do."""

from __future__ import annotations


class RunError(ValueError):
    """A run cannot be made or resumed as asked. The message says why and what to do."""
