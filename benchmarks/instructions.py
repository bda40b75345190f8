"""Instructions of one decision, counted by callgrind: the figure that does not depend on how busy the machine is.

``python -m benchmarks.instructions NAME RUNS`` is the process that is counted: the difference between many and
few runs is what the runs themselves execute.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import decision
from benchmarks.harness import Effort
from benchmarks.report import Row, Section, verdict
from benchmarks.task import QUESTIONS, built, made, policy
from engine.core.step import compile

ANCHOR = decision.ANCHOR
FEW, MANY = 200, 1200
"""Runs of the two processes that are compared: the difference is free of start and warm-up."""

OURS, OURS_BUILT = "ours, event ready", "ours, event built for each step"


def _programs() -> dict[str, tuple[Callable[[], Callable[[], object]], int]]:
    """What can be counted: makes a run, and its number of steps."""
    events = made()
    return {
        ANCHOR: (lambda: decision.questions, len(QUESTIONS)),
        decision.TWIN: (lambda: partial(decision.twin, built(events)), len(events)),
        OURS: (lambda: decision.ready(compile(policy()), built(events)), len(events)),
        OURS_BUILT: (lambda: decision.built_each_step(compile(policy()), events), len(events)),
    }


def sections(effort: Effort) -> Iterator[Section]:
    valgrind = shutil.which("valgrind")
    if valgrind is None or effort.quick:
        print("instructions are not counted: that takes valgrind, and a whole measurement", file=sys.stderr)
        return
    section = Section(
        "Instructions of one decision",
        "Counted under callgrind: the same runs as in the first table.",
        "step",
        ANCHOR,
    )
    counts: dict[str, float] = {}
    for name, (_, steps) in _programs().items():
        executed = [_count(valgrind, name, runs) for runs in (FEW, MANY)]
        counts[name] = (executed[1] - executed[0]) / (MANY - FEW) / steps
    for name, count in counts.items():
        row = Row(name, f"{count:,.0f}")
        if ANCHOR in counts:
            row.ratio = f"{count / counts[ANCHOR]:.2f}x"
        section.rows.append(row)
    if decision.TWIN in counts:
        ratio = counts[OURS] / counts[decision.TWIN]
        row = Row(
            "ours to the twin", f"{counts[OURS]:,.0f}", ratio=f"{ratio:.2f}x", bar="2x", met=verdict(ratio, ratio, 2)
        )
        section.rows.append(row)
    yield section


def _count(valgrind: str, name: str, runs: int) -> int:
    command = (
        valgrind,
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        sys.executable,
        "-m",
        __name__,
        name,
        str(runs),
    )
    # Where sets and dictionaries put things depends on the hash seed, and so does the count.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"callgrind failed: {done.stderr[-2000:]}")
    return int(found[1])


if __name__ == "__main__":
    run = _programs()[sys.argv[1]][0]()
    for _ in range(int(sys.argv[2])):
        run()
