"""Filling in the text of the generated ``step``; knows nothing of what it says."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = re.compile(r"<([A-Z_]+)>")
_ALONE = re.compile(r"( *)<([A-Z_]+)>")


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its parts; one that stands on a line of its own keeps its indentation, and may be empty."""
    lines: list[str] = []
    for line in template.split("\n"):
        alone = _ALONE.fullmatch(line)
        if alone:
            lines += [alone[1] + part for part in parts[alone[2]].split("\n") if part]
        else:
            lines.append(_PART.sub(lambda part: parts[part[1]], line))
    return "\n".join(lines)


def if_any(alternatives: str) -> str:
    """A statement that leaves ordinary turns where one of the lines of a condition holds."""
    if not alternatives:
        return ""
    lines = "\n".join(f"    {line}" for line in alternatives.strip().removeprefix("or ").split("\n"))
    return f"if (\n{lines}\n):\n    return general(state, event)"
