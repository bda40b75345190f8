"""``policy check`` and ``policy lint`` as whole processes, as a person or a commit hook meets them."""

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
BIN = Path(sys.executable).parent
COMMAND = (str(BIN / "policy"), "check")
LINT = (str(BIN / "policy"), "lint")
LINTED = "`policy lint FILE`"
FILES = 1000
ALONE, TOGETHER = "`policy lint --jobs 1 --no-cache`", "`policy lint --no-cache`"


def sections(effort: Effort) -> Iterator[Section]:
    yield _one_file(effort)
    yield _many_files(effort)


def _one_file(effort: Effort) -> Section:
    cpu: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        yaml, schema = _yaml(Path(folder))
        cases = [
            _process("`python -c pass`", (sys.executable, "-c", "pass"), cpu),
            _process(ANCHOR, (sys.executable, "-c", "import lark"), cpu),
            _process(
                '`python -c "import argparse, re, json"`', (sys.executable, "-c", "import argparse, re, json"), cpu
            ),
            _process("`policy check FILE`", (*COMMAND, str(SAMPLE)), cpu),
            _process("`policy check --format json FILE`", (*COMMAND, "--format", "json", str(SAMPLE)), cpu),
            _process(LINTED, (*LINT, str(SAMPLE)), cpu),
            _process("`yamllint`, as many lines of YAML", (str(BIN / "yamllint"), yaml), cpu),
            _process(
                "`check-jsonschema` of the same YAML",
                (str(BIN / "check-jsonschema"), "--schemafile", schema, yaml),
                cpu,
            ),
        ]
        for case in cases:
            case.run()  # what is compiled once and kept is not part of a start
        times = measure(cases, effort.slow(), WALL)
    processor = Times({name: seconds[-effort.processes :] for name, seconds in cpu.items()})
    section = Section(
        "Cold start",
        "Whole processes, one after the other in random order: the wall clock from start to exit, and at last the "
        "processor time of the same processes.",
        "process",
        ANCHOR,
    )
    barred = ("`policy check FILE`", LINTED)
    for case in cases:
        section.timed(times, case.name, ratio=1.6 if case.name in barred else None)
    for case in cases[-2:]:
        section.timed(times, LINTED, shown=f"{LINTED} to {case.name}", anchor=case.name, ratio=1.0)
    for name in (ANCHOR, *barred):
        section.timed(processor, name, shown=f"processor time: {name}", ratio=None if name == ANCHOR else 1.6)
    return section


def _yaml(folder: Path) -> tuple[str, str]:
    """A YAML file with as many lines as the sample, which is clean, and a schema that it fits."""
    lines = len(SAMPLE.read_text().splitlines())
    rows = [f"name_{n}: {{count: {n}, words: [one, two, three]}}" for n in range(lines - 1)]
    (folder / "sample.yaml").write_text("\n".join(["---", *rows, ""]))
    words = '{"type": "array", "items": {"type": "string"}}'
    row = f'{{"type": "object", "properties": {{"count": {{"type": "integer"}}, "words": {words}}}}}'
    (folder / "schema.json").write_text(f'{{"type": "object", "additionalProperties": {row}}}')
    return str(folder / "sample.yaml"), str(folder / "schema.json")


def _process(name: str, command: tuple[str, ...], cpu: dict[str, list[float]]) -> Case:
    spent = cpu.setdefault(name, [])
    return Case(name, lambda: spent.append(_run(command)))


def _run(command: tuple[str, ...]) -> float:
    """Run a command to its end; the seconds of processor time it took."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def _environment() -> dict[str, str]:
    """Ours, but for what keeps Python from storing what it has compiled: an installed program has that at hand."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _many_files(effort: Effort) -> Section:
    count = 20 if effort.quick else FILES
    text = SAMPLE.read_text()
    runs: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            (Path(folder) / f"policy_{i:04}.policy").write_text(text.replace("research-desk", f"desk-{i}"))
        cache = ("--cache-dir", str(Path(folder) / "kept"))
        commands = {
            "`policy check --jobs 1`": (*COMMAND, "--jobs", "1", folder),
            ALONE: (*LINT, "--jobs", "1", "--no-cache", folder),
            TOGETHER: (*LINT, "--no-cache", folder),
            "`policy lint`, nothing changed": (*LINT, *cache, folder),
        }
        _run(commands["`policy lint`, nothing changed"])
        for _ in range(min(5, effort.processes)):
            for name, command in commands.items():
                start = WALL()
                processor = _run(command)
                runs.setdefault(name, []).append((WALL() - start, processor))
    section = Section(
        f"{count:,} files in one command",
        "One command looks at a folder of policies like the one above; without `--jobs`, on all cores.",
        "run",
    )
    for name, times in runs.items():
        bar = 3.5 if "--jobs 1" in name else None
        for kind, seconds in (("", [wall for wall, _ in times]), (", processor time", [cpu for _, cpu in times])):
            usual, best = statistics.median(seconds), min(seconds)
            row = Row(f"{name}{kind}, {count:,} files", duration(usual), duration(best))
            if bar is not None:
                row.bar, row.met = duration(bar), verdict(usual, best, bar)
            row.note = f"{duration(usual / count)} a file"
            section.rows.append(row)
    section.rows.append(_gain(runs, count))
    return section


def _gain(runs: dict[str, list[tuple[float, float]]], count: int) -> Row:
    """What all cores gain: how many times as long one process takes, run by run. One after the other, so that a
    machine that is busy for a while is so for both."""
    pairs = zip(runs[ALONE], runs[TOGETHER], strict=True)
    gains = [alone[0] / together[0] for alone, together in pairs]
    row = Row(f"{ALONE} to {TOGETHER}, {count:,} files", ratio=f"{statistics.median(gains):.2f}")
    row.best_ratio, row.note = f"{max(gains):.2f}", f"what {os.cpu_count()} cores gain"
    return row
