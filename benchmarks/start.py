"""``policy check`` as whole processes, as a person or a commit hook meets it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frontend import SAMPLE
from benchmarks.harness import WALL, Case, Effort, Times, measure
from benchmarks.report import Row, Section, duration, verdict

ANCHOR = '`python -c "import lark"`'
COMMAND = (str(Path(sys.executable).parent / "policy"), "check")
FILES = 1000


def sections(effort: Effort) -> Iterator[Section]:
    yield _one_file(effort)
    yield _many_files(effort)


def _one_file(effort: Effort) -> Section:
    cpu: dict[str, list[float]] = {}
    cases = [
        _process("`python -c pass`", (sys.executable, "-c", "pass"), cpu),
        _process(ANCHOR, (sys.executable, "-c", "import lark"), cpu),
        _process('`python -c "import argparse, re, json"`', (sys.executable, "-c", "import argparse, re, json"), cpu),
        _process("`policy check FILE`", (*COMMAND, str(SAMPLE)), cpu),
        _process("`policy check --format json FILE`", (*COMMAND, "--format", "json", str(SAMPLE)), cpu),
    ]
    times = measure(cases, effort.slow(), WALL)
    processor = Times({name: seconds[-effort.processes :] for name, seconds in cpu.items()})
    section = Section(
        "Cold start",
        "Whole processes, one after the other in random order: the wall clock from start to exit, and at last the "
        "processor time of the same processes.",
        "process",
        ANCHOR,
    )
    for case in cases:
        section.timed(times, case.name, ratio=1.6 if case.name == "`policy check FILE`" else None)
    for name in (ANCHOR, "`policy check FILE`"):
        bar = None if name == ANCHOR else 1.6
        section.timed(processor, name, shown=f"processor time: {name}", ratio=bar)
    return section


def _process(name: str, command: tuple[str, ...], cpu: dict[str, list[float]]) -> Case:
    spent = cpu.setdefault(name, [])
    return Case(name, lambda: spent.append(_run(command)))


def _run(command: tuple[str, ...]) -> float:
    """Run a command to its end; the seconds of processor time it took."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def _many_files(effort: Effort) -> Section:
    count = 20 if effort.quick else FILES
    text = SAMPLE.read_text()
    wall: list[float] = []
    processor: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            (Path(folder) / f"policy_{i:04}.policy").write_text(text.replace("research-desk", f"desk-{i}"))
        for _ in range(min(5, effort.processes)):
            start = WALL()
            processor.append(_run((*COMMAND, folder)))
            wall.append(WALL() - start)
    section = Section(
        f"{count:,} files in one command", "One process checks a folder of policies like the one above.", "run"
    )
    for name, seconds in (("`policy check`", wall), ("processor time", processor)):
        usual, best = statistics.median(seconds), min(seconds)
        row = Row(f"{name}, {count:,} files", duration(usual), duration(best), bar="3.5 s")
        row.met, row.note = verdict(usual, best, 3.5), f"{duration(usual / count)} a file"
        section.rows.append(row)
    return section
