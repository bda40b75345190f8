"""What a policy's texts say once the numbers are known, and how quantities are written.

Pure formatting: it decides nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([a-z]+)\}")
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def fill(template: str, values: dict[str, str]) -> str:
    """The text with ``{name}`` replaced where ``values`` knows the name; ``{{`` and ``}}`` are literal braces."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        return values.get(match[1], match[0])

    return _PLACEHOLDER.sub(replace, template)


def quantity(unit: str, value: int) -> str:
    """``value`` as the language writes it: ``20``, ``5m30s``, ``$2.50``."""
    if unit == "duration":
        return duration(value)
    if unit == "money":
        return money(value)
    return str(value)


@lru_cache(maxsize=1024)
def duration(ms: int) -> str:
    """Milliseconds as ``5m30s``."""
    if ms <= 0:
        return "0s"
    parts = []
    for unit, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def money(micro: int) -> str:
    """Micro-dollars as ``$2.50``: no decimals for whole dollars, otherwise two, more where they are needed."""
    whole, part = divmod(abs(micro), 1_000_000)
    decimals = f"{part:06d}".rstrip("0").ljust(2, "0")
    return f"{'-' if micro < 0 else ''}${whole}{f'.{decimals}' if part else ''}"
