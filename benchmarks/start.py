"""``policy check`` as whole processes, as a person or a commit hook meets it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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

    def run() -> None:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
        spent.append(usage.ru_utime + usage.ru_stime)

    return Case(name, run)


def _many_files(effort: Effort) -> Section:
    count = 20 if effort.quick else FILES
    text = SAMPLE.read_text()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            (Path(folder) / f"policy_{i:04}.policy").write_text(text.replace("research-desk", f"desk-{i}"))
        samples = [_seconds(lambda: _check(folder)) for _ in range(min(3, effort.processes))]
    times = Times({"check": samples})
    usual, best, bar = times.usual("check"), times.best("check"), 3.5
    section = Section(
        f"{count:,} files in one command", "One process checks a folder of policies like the one above.", "run"
    )
    row = Row(f"`policy check` of {count:,} files", duration(usual), duration(best), bar=f"{bar} s")
    row.met = verdict(usual, best, bar)
    row.note = f"{duration(best / count)} a file"
    section.rows.append(row)
    return section


def _check(folder: str) -> None:
    subprocess.run((*COMMAND, folder), check=True, stdout=subprocess.DEVNULL)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
