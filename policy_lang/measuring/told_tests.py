"""Tests that were written, for people and for programs: those for what no test looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy_lang.measuring.generated import Generated
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain
from policy_lang.verifying.written import Written


def generated(path: str, made: Sequence[Generated], paint: Paint = plain) -> list[str]:
    """Every test, and why there is none of a rule."""
    many = sum(bool(one.test.text) for one in made)
    if not made:
        return [paint(clean(f"{path}: a test looks at every rule"), "strong")]
    out = [paint(clean(f"{path}: {many} of {len(made)} rules that no test looks at have a test now"), "strong"), ""]
    for one in made:
        out += block(one.test) if one.test.text else []
    for one in made:
        if not one.test.text:
            whose = f' as "{one.agent}"' if one.agent else ""
            out.append(clean(f"  no test of line {one.item.line}{whose}, {one.item.what}: {one.test.why_not}"))
    return out if out[-1] else out[:-1]


def block(test: Written, indent: str = "  ") -> list[str]:
    """The text of a test, with an empty line behind it."""
    return [*(f"{indent}{clean(line)}".rstrip() for line in test.text.splitlines()), ""]


def generated_data(path: str, one: Generated) -> dict[str, Any]:
    """``test`` is its text, empty where there is none: then ``why_not`` says why."""
    return {
        "file": path,
        "agent": one.agent,
        "line": one.item.line,
        "rule": one.item.key,
        "what": one.item.what,
        "title": one.test.title,
        "test": one.test.text,
        "why_not": one.test.why_not,
    }
