"""Coverage for people, and as data for programs. Text only: what is missed is always named, with its line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from policy_lang.measuring.coverage import KINDS, Covered
from policy_lang.renderers.snippet import clean
from policy_lang.testing.report import Paint, plain

_WIDTH = 104
_MOST = 40
"""Lines of what is missed that are shown for a file."""


class Measured(NamedTuple):
    """A file with its coverage."""

    path: str
    covered: list[Covered]


def share(covered: Iterable[Covered]) -> tuple[int, int]:
    """What was looked at, and what there is."""
    items = [item for one in covered for item in one.items]
    return sum(item.hit for item in items), len(items)


def percent(hit: int, there: int) -> float:
    """100 where there is nothing to look at."""
    return 100.0 * hit / there if there else 100.0


def report(one: Measured, paint: Paint = plain) -> list[str]:
    """All about one file: shares by kind, then what is missed."""
    out: list[str] = []
    for covered in one.covered:
        whose = f', as agent "{covered.agent}"' if covered.agent else ""
        out += [paint(clean(f"coverage of {one.path}{whose}"), "strong"), *_shares(covered, paint)]
        for number, item in enumerate(covered.missed[:_MOST]):
            out += _row("" if number else "missed", f"{f'line {item.line}':<8}  {item.what}", paint, hang=10)
        if len(covered.missed) > _MOST:
            out += _row("", f"and {len(covered.missed) - _MOST} more; `--json` has them all", paint)
        if covered.cut:
            way = "; `--timeout` gives it more" if "time" in covered.cut else ""
            text = f"{covered.states:,} states; {covered.cut}, so that runs may come to more{way}"
            out += _row("looked at", text, paint)
    return out


def _shares(covered: Covered, paint: Paint) -> list[str]:
    out = []
    for kind in KINDS:
        items = [item for item in covered.items if item.kind == kind]
        if items:
            hit = sum(item.hit for item in items)
            words = f"{hit} of {len(items)}"
            out += _row(kind, paint(words, "good") if hit == len(items) else words, paint)
    return out or _row("", "nothing in it that a test could look at", paint)


def _row(name: str, text: str, paint: Paint, hang: int = 0) -> list[str]:
    shown = "\x1b".join(clean(part) for part in text.split("\x1b"))
    lines = textwrap.wrap(shown, _WIDTH - 14, break_long_words=False, break_on_hyphens=False, drop_whitespace=False)
    first, *rest = [line.rstrip() for line in lines] or [""]
    return [f"  {name:<12}  {first}".rstrip(), *(" " * (16 + hang) + line.strip() for line in rest)]


def summary(measured: Sequence[Measured], threshold: float | None) -> str:
    """``coverage: 12 of 17 (70.6%)``, and whether that is enough."""
    hit, there = share(covered for one in measured for covered in one.covered)
    said = f"coverage: {hit} of {there} ({percent(hit, there):.1f}%)"
    if threshold is None:
        return said
    return f"{said}, {'below' if below(measured, threshold) else 'not below'} the threshold of {threshold:g}%"


def below(measured: Sequence[Measured], threshold: float | None) -> bool:
    """Is less covered than was asked for?"""
    return threshold is not None and percent(*share(c for one in measured for c in one.covered)) < threshold


def as_data(measured: Sequence[Measured], threshold: float | None) -> dict[str, Any]:
    """``{"hit": n, "reachable": n, "percent": p, "threshold": p, "files": […]}``; of each file every item."""
    hit, there = share(covered for one in measured for covered in one.covered)
    return {
        "hit": hit,
        "reachable": there,
        "percent": round(percent(hit, there), 2),
        "threshold": threshold,
        "files": [_file(one.path, covered) for one in measured for covered in one.covered],
    }


def _file(path: str, covered: Covered) -> dict[str, Any]:
    hit, there = share([covered])
    return {
        "file": path,
        "agent": covered.agent,
        "hit": hit,
        "reachable": there,
        "states": covered.states,
        "cut": covered.cut,
        "items": [item._asdict() for item in covered.items],
    }


__all__ = ["Measured", "as_data", "below", "percent", "report", "share", "summary"]
