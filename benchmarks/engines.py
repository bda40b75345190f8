"""``python -m benchmarks.engines`` measures what durable engines cost, and what our adapters cost above them.

Each engine has a module of its own (``on_NAME``); what is not here is left out. With ``--write`` the figures go to
``benchmarks/engines.json``, from which ``benchmarks.scale`` reckons, and the table to ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.engine_work import STEPS, WAITING, WAITS_S, Engine, Going, memory, processor

MODULES = ("on_journal", "on_restate", "on_dbos", "on_temporal")
FIGURES = Path(__file__).parent / "engines.json"
PAGE = Path(__file__).parent.parent / "docs" / "engines.md"
BEGIN, END = "<!-- table: written by `python -m benchmarks.engines --write` -->", "<!-- end of table -->"
AT_ONCE = 50
_RECOVERED = 20
"""Runs that are in their middle when their worker is killed."""
_FEWEST_MS = 0.001
_WAITING = (25, 100)
"""Runs that wait at the same time, twice: what the second time takes more, divided by how many more there are."""


def engines(only: list[str]) -> Iterator[Engine]:
    """All that can be measured here."""
    for module in MODULES:
        try:
            found = import_module(f"benchmarks.{module}")
        except ModuleNotFoundError as exc:
            print(f"{module}: not measured, {exc}", file=sys.stderr)
            continue
        for engine in found.ENGINES:
            if only and engine.name not in only:
                continue
            if missing := engine.missing():
                print(f"{engine.name}: not measured, {missing}", file=sys.stderr)
            else:
                yield engine


async def measured(engine: Engine, rounds: int, runs: int) -> dict[str, Any]:
    """All figures of one engine, medians over rounds; ours and plain in turn, so that both see the same machine."""
    with tempfile.TemporaryDirectory(prefix="engines-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)  # PostgreSQL runs as somebody else
        async with engine.going(Path(folder)) as going:
            await going.ours(_names("warm", 5), AT_ONCE)
            await going.plain(_names("warm-plain", 5), AT_ONCE)
            before = going.stored()
            samples = [await _round(going, number, runs) for number in range(rounds)]
            stored = (going.stored() - before) / (2 * rounds * (runs + 5))
            figures: dict[str, Any] = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
            figures["ratio"] = statistics.median(s["ours_ms"] / s["plain_ms"] for s in samples)
            figures["cpu_ratio"] = statistics.median(
                s["ours_cpu_ms"] / max(s["plain_cpu_ms"], _FEWEST_MS) for s in samples
            )
            figures["stored_a_run"] = stored
            figures["memory"] = memory(going.processes())
            figures["memory_a_run"] = await _waiting(going)
            figures["recovery_s"] = await _recovery(going)
    return {"engine": engine.name, "steps": STEPS, "at_once": AT_ONCE, "runs": runs, **figures}


async def _round(going: Going, number: int, runs: int) -> dict[str, float]:
    """Times of a step in ms: 50 at once and one after another, by the wall and by all processors."""
    sample: dict[str, float] = {}
    kinds = [("ours", going.ours), ("plain", going.plain)]
    for kind, do in kinds if number % 2 else reversed(kinds):
        names = _names(f"{kind}-{number}", runs)
        wall, cpu = await _timed(going, lambda do=do, names=names: do(names, AT_ONCE))
        sample[f"{kind}_ms"] = wall * 1000 / (runs * STEPS)
        sample[f"{kind}_cpu_ms"] = cpu * 1000 / (runs * STEPS)
        alone = _names(f"{kind}-alone-{number}", 5)

        async def one_by_one(do: Any = do, alone: list[str] = alone) -> None:
            for name in alone:
                await do([name], 1)

        wall, _ = await _timed(going, one_by_one)
        sample[f"{kind}_alone_ms"] = wall * 1000 / (len(alone) * STEPS)
    return sample


async def _timed(going: Going, do: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    pids = list(going.processes())
    began, cpu = time.perf_counter(), processor(pids)
    await do()
    return time.perf_counter() - began, processor(pids) - cpu


async def _waiting(going: Going) -> float:
    """Bytes of memory that one more run takes while it waits for a model, in servers and workers."""
    used = {}
    pids = [pid for pid in going.processes() if pid != os.getpid()] or [os.getpid()]
    for count in _WAITING:
        runs = asyncio.ensure_future(going.ours(_names(f"{WAITING}-{count}", count), count))
        await asyncio.sleep(WAITS_S * 0.8)
        used[count] = memory(pids)
        await runs
    few, many = _WAITING
    return max(used[many] - used[few], 0) / (many - few)


async def _recovery(going: Going) -> float:
    """Seconds from the death of a worker until all of its runs have ended elsewhere."""
    ended = await going.recovered(_names("killed", _RECOVERED))
    began = time.perf_counter()
    await ended()
    return time.perf_counter() - began


def _names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


# The table.


def table(figures: list[dict[str, Any]], machine: str) -> str:
    """What was measured, in Markdown."""
    lines = [
        machine,
        "",
        f"| engine | ms a step, {AT_ONCE} runs at once | without us | ratio | processor ms a step | without us | ratio "
        "| ms a step, one run alone | kB stored a run | kB of memory a waiting run | MB of memory "
        "| s from kill -9 of a worker to the end |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in figures:
        lines.append(
            f"| {each['engine']} | {each['ours_ms']:.2f} | {each['plain_ms']:.2f} | {each['ratio']:.2f}x "
            f"| {each['ours_cpu_ms']:.2f} | {each['plain_cpu_ms']:.2f} | {each['cpu_ratio']:.2f}x "
            f"| {each['ours_alone_ms']:.2f} | {each['stored_a_run'] / 1000:.0f} | {each['memory_a_run'] / 1000:.0f} "
            f"| {each['memory'] / 1e6:.0f} | {each['recovery_s']:.1f} |"
        )
    return "\n".join(lines)


def write(figures: list[dict[str, Any]], machine: str) -> None:
    """Keep figures and table; what was not measured this time keeps its line of before."""
    known = {each["engine"]: each for each in _kept()} | {each["engine"]: each for each in figures}
    FIGURES.write_text(json.dumps({"machine": machine, "engines": list(known.values())}, indent=2) + "\n")
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(list(known.values()), machine)}\n\n{END}{tail}")


def _kept() -> list[dict[str, Any]]:
    return list(json.loads(FIGURES.read_text())["engines"]) if FIGURES.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only see that everything works; the numbers mean nothing")
    parser.add_argument("--write", action="store_true", help="update benchmarks/engines.json and docs/engines.md")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENGINE")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=50, help=f"in each round, {AT_ONCE} at once")
    args = parser.parse_args()
    if args.write and args.quick:
        parser.error("--write needs a whole measurement")
    if args.quick:
        args.rounds, args.runs = 1, 4
    if args.only and (unknown := set(args.only) - {engine.name for engine in engines([])}):
        parser.error(f"not measured here: {', '.join(sorted(unknown))}")
    load, figures = os.getloadavg()[0], []
    for engine in engines(args.only):
        print(f"measuring {engine.name}", file=sys.stderr)
        figures.append(asyncio.run(measured(engine, args.rounds, args.runs)))
        if args.write:  # each at once: the next one may fail
            write(figures, report.machine(load))
    print(table(figures, report.machine(load)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
