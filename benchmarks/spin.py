"""The exact search beside Spin on the same machine, from the policy to the verdict: writing, compiling, searching.

Without Spin and a C compiler, this part is left out.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import WALL, Effort
from benchmarks.report import Row, Section, duration, verdict
from engine.core.machine.build import build
from engine.core.machine.laws import laws_of
from engine.core.machine.machine import Machine
from engine.core.policy import Extend, Finalize, Limit, Policy
from engine.verify.explore import explore
from engine.verify.promela import promela
from engine.verify.prove import PLAIN
from engine.verify.world import around

_STORED = re.compile(r"(\d+) states, stored")
_ERRORS = re.compile(r"errors: (\d+)")
_DEPTH = 1_000_000


def installed() -> bool:
    """Are both programs there?"""
    return bool(shutil.which("spin") and shutil.which("gcc"))


def sections(effort: Effort) -> Iterator[Section]:
    if not installed():
        print("spin is left out: `apt-get install spin gcc` gets it", file=sys.stderr)
        return
    section = Section(
        "Beside Spin",
        "`llm_calls` and `tool_iterations extend 3`, both `finalize`, with all laws: total time by the clock, for Spin "
        "with `spin -a`, `gcc` and `pan`. The two smaller ones with everything free that a host may do; the largest as "
        "a run by itself, without agents that take over. The bar is Spin's time.",
        "policy",
    )
    for calls, rounds in ((6, 5),) if effort.quick else ((6, 5), (60, 50), (1000, 1000)):
        section.rows += _compared(calls, rounds, 1 if effort.quick else 3)
    yield section


def _compared(calls: int, rounds: int, times: int) -> tuple[Row, Row]:
    ours, theirs = [], []
    for _ in range(times):
        started = WALL()
        policy = Policy(
            name="core",
            limits=(
                Limit(resource="llm_calls", max=calls, then=(Finalize(),)),
                Limit(resource="tool_iterations", max=rounds, then=(Extend(by=3), Finalize())),
            ),
        )
        machine, laws = _machine(policy, calls), laws_of(policy)
        found = explore(machine, laws, apart=True)
        ours.append(WALL() - started)
        started = WALL()
        text = promela(machine, laws)
        states, errors = spun(text)
        theirs.append(WALL() - started)
        assert found.holds
        assert (states, errors) == (found.states, 0)
    name = f"{calls}/{rounds}"
    usual, best = statistics.median(ours), min(ours)
    spins = statistics.median(theirs)
    mine = Row(f"{name}, exact search", duration(usual), duration(best), note=f"{found.states:,} states in both")
    mine.ratio, mine.bar, mine.met = f"{usual / spins:.2f}x", duration(spins), verdict(usual, best, spins)
    return mine, Row(f"{name}, Spin", duration(spins), duration(min(theirs)))


def _machine(policy: Policy, calls: int) -> Machine:
    return build(policy) if calls < 1000 else around(build(policy), policy, PLAIN)


def spun(text: str) -> tuple[int, int]:
    """States that Spin stores of a model, and errors that it finds: 1 where it stops at the first.

    Raises:
        RuntimeError: Spin or the compiler do not take the model, or not all of it was searched.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.pml").write_text(text)
        _ran(folder, "spin", "-a", "model.pml")
        _ran(folder, "gcc", "-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-o", "pan", "pan.c")
        said = _ran(folder, "./pan", f"-m{_DEPTH}")
    stored, errors = _STORED.search(said), _ERRORS.search(said)
    if stored is None or errors is None or "max search depth too small" in said:
        raise RuntimeError(f"Spin has not searched the whole model: {said}")
    return int(stored[1]), int(errors[1])


def _ran(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or "Error:" in done.stdout:
        raise RuntimeError(f"{command[0]} fails: {done.stdout}{done.stderr}")
    return done.stdout
