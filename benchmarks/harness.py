"""Timing on a machine that other work shares: interleaved rounds, ratios inside each round.

All cases of a comparison are timed in every round, in a new random order each round, so that a slow
moment hits all of them alike; a ratio is taken inside its round first and the median of the ratios
afterwards. ``best`` is the fastest round: where best and median disagree, the machine was busy.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import NamedTuple


class Effort(NamedTuple):
    """How much time to spend. ``sample`` is the length of one sample in seconds."""

    rounds: int
    sample: float
    processes: int
    """Rounds of comparisons whose cases are whole processes or long runs."""
    quick: bool = False

    def slow(self) -> Effort:
        """For cases that are long by themselves: fewer rounds, each case once a round."""
        return Effort(self.processes, 0.0, self.processes, self.quick)

    def longer(self, factor: int) -> Effort:
        """For cases that vary more from call to call: longer samples, fewer of them."""
        return Effort(max(2, self.rounds // 2), self.sample * factor, self.processes, self.quick)


FULL = Effort(rounds=41, sample=0.008, processes=15)
QUICK = Effort(rounds=2, sample=0.0005, processes=1, quick=True)


class Case(NamedTuple):
    """Something to time. One call of ``run`` does ``ops`` operations."""

    name: str
    run: Callable[[], object]
    ops: int = 1


class Times:
    """Seconds per operation of each case, one number a round."""

    def __init__(self, samples: dict[str, list[float]]) -> None:
        self.samples = samples

    def usual(self, name: str) -> float:
        """The median."""
        return statistics.median(self.samples[name])

    def best(self, name: str) -> float:
        return min(self.samples[name])

    def ratio(self, name: str, anchor: str, scale: float = 1.0) -> float:
        """The median over rounds of case to anchor; ``scale`` where the two count different operations."""
        pairs = zip(self.samples[name], self.samples[anchor], strict=True)
        return statistics.median(a / b for a, b in pairs) * scale

    def best_ratio(self, name: str, anchor: str, scale: float = 1.0) -> float:
        return self.best(name) / self.best(anchor) * scale


Clock = Callable[[], float]
"""Seconds, of any origin."""

PROCESSOR: Clock = time.process_time
"""For what only computes: time in which other programs had the processor does not count."""

WALL: Clock = time.perf_counter
"""For what waits: for a disk, a network, another process."""


def measure(cases: Sequence[Case], effort: Effort, clock: Clock = PROCESSOR, seed: int = 1) -> Times:
    """Time all cases against one another. Refuses to run under a tracer, which would time the tracer."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        raise RuntimeError("benchmarks must not run under coverage, a debugger or a profiler")
    shuffled = random.Random(seed)
    loops = {case.name: _loops(case, effort.sample, clock) for case in cases}
    samples: dict[str, list[float]] = {case.name: [] for case in cases}
    with _settled():
        for _ in range(effort.rounds):
            order = list(cases)
            shuffled.shuffle(order)
            for case in order:
                gc.collect()
                count = loops[case.name]
                samples[case.name].append(_time(case.run, count, clock) / (count * case.ops))
    return Times(samples)


@contextmanager
def _settled() -> Iterator[None]:
    """What was imported so far does not weigh on collections; the collector stays on, it is part of the cost."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _time(run: Callable[[], object], loops: int, clock: Clock) -> float:
    turns = repeat(None, loops)
    start = clock()
    for _ in turns:
        run()
    return clock() - start


def _loops(case: Case, sample: float, clock: Clock) -> int:
    """How often to call a case for one sample. Calling it also warms it up."""
    case.run()
    loops, spent = 1, _time(case.run, 1, clock)
    while spent < sample / 4:
        loops = max(loops * 2, int(loops * sample / 4 / max(spent, 1e-9)))
        spent = _time(case.run, loops, clock)
    return max(1, round(loops * sample / max(spent, 1e-9)))
