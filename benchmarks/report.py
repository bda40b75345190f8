"""From measured numbers to a table: rows, bars and whether they are met, the machine, the page in ``docs``."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import Times

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- table: written by `python -m benchmarks --write` -->", "<!-- end of table -->"


@dataclass
class Row:
    """One line. ``usual`` and ``best`` are what the bar is compared with; ``cells`` are shown as they are."""

    name: str
    value: str = ""
    best: str = ""
    ratio: str = ""
    best_ratio: str = ""
    bar: str = ""
    met: str = ""
    note: str = ""


@dataclass
class Section:
    """A comparison: what is measured, what the ratios are to, and its rows."""

    title: str
    about: str
    per: str
    anchor: str = ""
    rows: list[Row] = field(default_factory=list)

    def timed(
        self,
        times: Times,
        name: str,
        *,
        scale: float = 1.0,
        shown: str = "",
        anchor: str | None = None,
        ratio: float | None = None,
        at_most: float | None = None,
        note: str = "",
    ) -> None:
        """A row of a timed case. ``scale``: operations in what is shown (a whole run, say).

        ``ratio`` is a bar on the ratio to the anchor, ``at_most`` a bar in seconds.
        """
        anchor = self.anchor if anchor is None else anchor
        usual, best = times.usual(name) * scale, times.best(name) * scale
        row = Row(shown or name, duration(usual), duration(best), note=note)
        if anchor:
            times_usual, times_best = times.ratio(name, anchor, scale), times.best_ratio(name, anchor, scale)
            row.ratio, row.best_ratio = f"{times_usual:.2f}x", f"{times_best:.2f}x"
            if ratio is not None:
                row.bar, row.met = f"{ratio:g}x", verdict(times_usual, times_best, ratio)
        if at_most is not None:
            row.bar, row.met = duration(at_most), verdict(usual, best, at_most)
        self.rows.append(row)


def verdict(usual: float, best: float, bar: float) -> str:
    """Is a bar met in the usual round, at least in the best one, or not at all?"""
    return "yes" if usual <= bar else "in the best round" if best <= bar else "**no**"


def duration(seconds: float) -> str:
    """A time in the unit a person would choose."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:,.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def render(sections: Sequence[Section], machine: str) -> str:
    """The whole report in Markdown."""
    return "\n\n".join([machine, *(_section(section) for section in sections)]) + "\n"


_HEAD = ("", "median", "best", "ratio", "best ratio", "bar", "met", "")


def _section(section: Section) -> str:
    head = (section.title, f"median/{section.per}", *_HEAD[2:])
    lines = [_line(head), "|---|---:|---:|---:|---:|---:|---|---|"]
    lines += [_line((r.name, r.value, r.best, r.ratio, r.best_ratio, r.bar, r.met, r.note)) for r in section.rows]
    anchor = f" Ratios are to *{section.anchor}*." if section.anchor else ""
    return f"### {section.title}\n\n{section.about}{anchor}\n\n" + "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def machine(load_before: float) -> str:
    """Date, processor, Python, and how busy the machine was before and after (the table says where that shows)."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    load = f"load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    return f"{when}; {python}; {_processor()}, {os.cpu_count()} cores; {platform.system()}; {load}."


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def write(report: str) -> None:
    """Replace the table in ``docs/performance.md``."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{report}\n{END}{after}")
